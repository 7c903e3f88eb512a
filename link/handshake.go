package link

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire/conn"
)

// handshakeTime is how long both sides have to show who they are (CL-TRN-25).
const handshakeTime = 5 * time.Second

// hello is what this process says first on a connection.
func (n *Net) hello(to serry.Life, lane, lanes int, set, lastSet uint64) hello {
	h := hello{
		oldest: version, newest: version, order: littleEndian, lane: byte(lane), lanes: byte(lanes), largest: ChunkBytes,
		job: n.member.Service(), set: set, lastSet: lastSet, from: n.life, to: to,
	}
	rand.Read(h.nonce[:])
	return h
}

// writeFrame writes a frame of the handshake.
func writeFrame(c net.Conn, t Type, payload []byte) error {
	h := Header{Type: t, length: uint32(len(payload))}
	_, err := c.Write(append(h.append(nil), payload...))
	return err
}

// readFrame reads a frame of the handshake: one of that type, or a refusal.
func readFrame(c net.Conn, want Type) ([]byte, error) {
	var head [headerBytes]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	h, err := parseHeader(head[:])
	if err != nil {
		return nil, err
	}
	if h.Family != linkFamily || h.Type != want && h.Type != typeRefused {
		return nil, fmt.Errorf("%w: type %d of family %v in a handshake", errLane, h.Type, h.Family)
	}
	var payload bytes.Buffer // it grows with what comes: strangers announce as much as they like
	if _, err := io.CopyN(&payload, c, int64(h.length)); err != nil {
		return nil, err
	}
	if h.Type == typeRefused {
		code, text := parseRefused(payload.Bytes())
		return nil, &RefusedError{Code: code, Text: text}
	}
	return payload.Bytes(), nil
}

// greet is the handshake of the side that dialled. It ends when the peer has accepted the connection.
func (n *Net) greet(ctx context.Context, c *conn.Conn, mine hello) error {
	c.SetDeadline(time.Now().Add(handshakeTime))
	defer context.AfterFunc(ctx, func() { c.Close() })()
	said := mine.append(nil)
	if err := writeFrame(c, typeHello, said); err != nil {
		return err
	}
	answer, err := readFrame(c, typeHello)
	if err != nil {
		return n.named(err, mine.to)
	}
	theirs, err := parseHello(answer)
	if err != nil {
		return err
	}
	if code, text := n.examine(&theirs); code != 0 {
		return &RefusedError{Peer: mine.to, Code: code, Text: text}
	}
	if code, text := n.checkUser(c); code != 0 {
		return &RefusedError{Peer: mine.to, Code: code, Text: text}
	}
	if theirs.from != mine.to && !n.opt.Planted.Has(plant.StaleLink) {
		return &RefusedError{Peer: mine.to, Code: Stale, Text: fmt.Sprintf("its address is used by %v now", theirs.from.Task)}
	}
	if err := writeFrame(c, typeAuth, proof(n.opt.Secret, dialler, said, answer)); err != nil {
		return err
	}
	shown, err := readFrame(c, typeAuth)
	if err != nil {
		return n.named(err, mine.to)
	}
	if !hmac.Equal(shown, proof(n.opt.Secret, acceptor, said, answer)) {
		return &RefusedError{Peer: mine.to, Code: WrongSecret}
	}
	return c.SetDeadline(time.Time{})
}

// named adds to a refusal who refused.
func (n *Net) named(err error, peer serry.Life) error {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		refused.Peer = peer
	}
	return err
}

// examine says what of a hello of a peer does not fit, in words that the peer may read.
func (n *Net) examine(h *hello) (Refusal, string) {
	switch {
	case h.oldest > version || h.newest < version:
		return NoVersion, fmt.Sprintf("this process speaks version %d", version)
	case h.order != littleEndian:
		return ByteOrder, "numbers must be little-endian"
	case h.job != n.member.Service():
		return OtherJob, "it belongs to another run of the job"
	case h.to != n.life && !n.opt.Planted.Has(plant.StaleLink):
		return Stale, fmt.Sprintf("this is %v with incarnation %016x", n.life.Task, uint64(n.life.Incarnation))
	}
	return 0, ""
}

// checkUser refuses a process of this host that runs as another user: the name of the socket is no secret, and no file
// guards it (CL-TRN-25). Such processes may still meet over TCP.
func (n *Net) checkUser(c *conn.Conn) (Refusal, string) {
	u, ok := c.Conn.(*net.UnixConn)
	if !ok {
		return 0, ""
	}
	if uid, err := userOf(u); err != nil || uid != n.user {
		return OtherUser, "processes of a host must have the same user"
	}
	return 0, ""
}

// serve is the handshake of the side that was dialled, within handshakeTime of when it was, TLS included: the deadline of the
// connection is set. The connection outlives it as a lane of a link.
func (n *Net) serve(c *conn.Conn) {
	said, err := readFrame(c, typeHello)
	if err != nil {
		n.log.Info("link refused", "peer", c.RemoteAddr(), "err", err)
		return
	}
	theirs, err := parseHello(said)
	if err != nil {
		n.log.Info("link refused", "peer", c.RemoteAddr(), "err", err)
		return
	}
	if code, text := n.examine(&theirs); code != 0 {
		n.refuse(c, &theirs, code, text)
		return
	}
	if code, text := n.checkUser(c); code != 0 {
		n.refuse(c, &theirs, code, text)
		return
	}
	mine := n.hello(theirs.from, int(theirs.lane), int(theirs.lanes), theirs.set, 0)
	answer := mine.append(nil)
	if err := writeFrame(c, typeHello, answer); err != nil {
		return
	}
	shown, err := readFrame(c, typeAuth)
	if err != nil {
		n.log.Info("link refused", "peer", theirs.from.Task, "err", err)
		return
	}
	if !hmac.Equal(shown, proof(n.opt.Secret, dialler, said, answer)) {
		n.refuse(c, &theirs, WrongSecret, "it does not know the secret of the job")
		return
	}
	if theirs.lane == lendLane {
		n.lent(c, &theirs, proof(n.opt.Secret, acceptor, said, answer))
		return
	}
	l, code, text := n.admit(c, &theirs)
	if code != 0 {
		n.refuse(c, &theirs, code, text)
		return
	}
	if err := writeFrame(c, typeAuth, proof(n.opt.Secret, acceptor, said, answer)); err != nil {
		l.incomplete(theirs.set)
		return
	}
	c.Detach()
	c.Greeted()
	l.attach(int(theirs.lane), int(theirs.lanes), theirs.set, c, c)
}

// refuse tells the peer why its connection is not taken.
func (n *Net) refuse(c *conn.Conn, theirs *hello, code Refusal, text string) {
	n.log.Info("link refused", "peer", theirs.from.Task, "incarnation", theirs.from.Incarnation, "address", c.RemoteAddr(), "err", code.String())
	if writeFrame(c, typeRefused, appendRefused(nil, code, text)) == nil {
		c.CloseWrite()
	}
}

// admit decides which link a connection belongs to.
func (n *Net) admit(c net.Conn, h *hello) (*Link, Refusal, string) {
	if h.lanes <= firstBulk || h.lanes > firstBulk+MaxLanes || h.lane >= h.lanes || h.set == 0 {
		return nil, NoVersion, fmt.Sprintf("lane %d of %d", h.lane, h.lanes)
	}
	if !n.current(h.from) {
		return nil, Replaced, "the service knows a newer life of the task, or not this one"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.mu.links[h.from]
	switch {
	case n.mu.closed:
		return nil, Closing, ""
	case h.lane != controlLane:
		if l == nil || !l.forms(h.set) && !l.extends(h) {
			return nil, Crossed, "its control connection is gone"
		}
		return l, 0, ""
	case l == nil && !n.hasPlace(h.from):
		go n.evict(h.from, peerTenure) // the peer dials again
		return nil, Busy, ""
	case l == nil:
		l = n.add(h.from)
	default:
		var code Refusal
		if l, code = n.cross(l, h); code != 0 {
			return nil, code, ""
		}
	}
	l.accept(h, c)
	return l, 0, ""
}

// cross decides what becomes of a set that a peer dials while there is a link to it, or while this process
// dials, too. mu is held.
func (n *Net) cross(l *Link, h *hello) (*Link, Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.state == forming && l.mu.dial != nil:
		// CL-TRN-24: the set of the lower life stays. But a dial that is waiting for its next attempt, as one
		// that cannot get through does, has no set to prefer.
		if l.mu.dial.busy && n.life.Compare(h.from) < 0 {
			return nil, Crossed
		}
		l.mu.dial.cancel(errCrossed)
		l.mu.dial = nil
		return l, 0
	case l.mu.state == forming && l.set == h.set:
		return nil, Crossed
	case l.mu.state == up && h.lastSet != l.set:
		return nil, Crossed // the peer dialled before it knew of the link that is up
	}
	// The peer knows the present set and has lost it, or began one that did not come up.
	n.drop(l)
	go l.end(&LossError{Peer: l.peer, Source: FromLink, Reason: errDialledAnew, Err: ErrTransport})
	return n.add(h.from), 0
}

var (
	errCrossed     = errors.New("the peer dialled, too")
	errDialledAnew = errors.New("the peer lost the link and dialled anew")
)
