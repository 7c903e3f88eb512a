package front

import (
	"bytes"
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// read handles chunk after chunk until the connection ends.
func (c *connection) read() error {
	for {
		p, err := c.nc.Next()
		if err == nil {
			fresh := len(p) - len(c.nc.Kept())
			c.srv.count.read.Add(uint64(fresh))
			if err = c.chunk(p); err == nil {
				c.slow(fresh)
			}
		} else if c.in.opened && c.woken(err) {
			err = nil
			c.flush()
		} else if !c.in.opened && timeout(err) {
			err = errHandshake
		}
		if err != nil {
			return err
		}
		if c.drained() {
			return errDrained
		}
	}
}

// chunk handles all whole frames of p, which is what one read brought, then writes once.
func (c *connection) chunk(p []byte) error {
	c.ageStreams(c.srv.now())
	c.inChunk.Store(true)
	rest, err := c.consume(p)
	if err != nil {
		return err
	}
	c.nc.Keep(rest)
	c.armDeadlines()
	if c.in.served {
		c.in.served = false
		c.srv.handler.Served(c)
	}
	c.inChunk.Store(false)
	c.flush()
	c.mu.HoldBack() // while the peer leaves too much output unread (F-15)
	return nil
}

// ageStreams sets the time of the chunk, and about once a second the number that separates young streams
// from old ones.
func (c *connection) ageStreams(now time.Duration) {
	switch in := &c.in; {
	case now-in.now >= watchEvery: // nothing came for so long
		in.young, in.youngNext, in.youngSince = in.highest, in.highest, now
	case now-in.youngSince >= watchEvery:
		in.young, in.youngNext, in.youngSince = in.youngNext, in.highest, now
	}
	c.in.now = now
}

// consume handles the frames of p and returns what is left of it, the start of a frame.
func (c *connection) consume(p []byte) ([]byte, error) {
	if !c.in.started {
		if n := min(len(p), len(http2.ClientPreface)); !bytes.Equal(p[:n], []byte(http2.ClientPreface[:n])) {
			return nil, errNotHTTP2
		}
		if len(p) < len(http2.ClientPreface) {
			return p, nil
		}
		c.in.started = true
		p = p[len(http2.ClientPreface):]
	}
	for {
		if c.in.data.active {
			n, err := c.dataBytes(p)
			if err != nil {
				return nil, err
			}
			if p = p[n:]; c.in.data.active {
				return p, nil
			}
		}
		if len(p) < h2.HeadBytes {
			return p, nil
		}
		h := h2.ParseHead(p)
		if err := c.checkFrame(h); err != nil {
			return nil, err
		}
		if h.Kind == http2.FrameData {
			n, err := c.dataStart(h, p[h2.HeadBytes:])
			if err != nil || n < 0 {
				return p, err
			}
			p = p[h2.HeadBytes+n:]
			continue
		}
		end := h2.HeadBytes + h.Length
		if len(p) < end {
			return p, nil
		}
		if err := c.frame(h, p[h2.HeadBytes:end]); err != nil {
			return nil, err
		}
		p = p[end:]
	}
}

// checkFrame refuses frames that are too long or out of place, by their head alone.
func (c *connection) checkFrame(h h2.Head) error {
	limit := h2.MinFrame
	if h.Kind == http2.FrameData {
		limit = maxDataFrame
	}
	switch {
	case h.Length > limit:
		return &ConnError{http2.ErrCodeFrameSize, "frame too long"}
	case !c.in.opened && (h.Kind != http2.FrameSettings || h.Flags.Has(http2.FlagSettingsAck)):
		return protocolError("first frame is not SETTINGS")
	case c.in.block.stream != 0 && (h.Kind != http2.FrameContinuation || h.Stream != c.in.block.stream):
		return protocolError("header block interrupted")
	}
	return nil
}

// frame handles any whole frame but DATA.
func (c *connection) frame(h h2.Head, p []byte) error {
	switch h.Kind {
	case http2.FrameHeaders:
		return c.headersFrame(h, p)
	case http2.FrameContinuation:
		return c.continuationFrame(h, p)
	case http2.FrameRSTStream:
		return c.resetFrame(h, p)
	case http2.FrameWindowUpdate:
		return c.windowFrame(h, p)
	case http2.FramePing:
		return c.pingFrame(h, p)
	case http2.FrameSettings:
		return c.settingsFrame(h, p)
	case http2.FramePriority:
		return c.priorityFrame(h, p)
	case http2.FrameGoAway:
		if h.Stream != 0 || len(p) < 8 {
			return protocolError("bad GOAWAY")
		}
		return nil // a server opens no streams that would have to end now
	case http2.FramePushPromise:
		return protocolError("PUSH_PROMISE from a client")
	}
	return c.idleFrame()
}

func (c *connection) pingFrame(h h2.Head, p []byte) error {
	switch {
	case h.Stream != 0:
		return protocolError("PING on a stream")
	case len(p) != 8:
		return &ConnError{http2.ErrCodeFrameSize, "PING length"}
	case h.Flags.Has(http2.FlagPingAck):
		if [8]byte(p) == drainPing {
			c.refuseNew()
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Clients measure bandwidth with a PING after data they received, thousands a second when busy.
	if moved := c.mu.sender.moved; moved != c.in.pingedAt {
		c.in.pingedAt = moved
	} else if c.in.pings.over(pingRate, c.in.now) {
		return c.overLimit(refusedPings, "too many PINGs")
	}
	c.mu.Out = h2.AppendPing(c.mu.Out, http2.FlagPingAck, [8]byte(p))
	return c.acknowledged()
}

// acknowledged counts an acknowledgement put into the output; mu is held.
func (c *connection) acknowledged() error {
	if c.mu.acks++; c.mu.acks > maxAcks {
		return c.overLimit(refusedAcks, "acknowledgements unread")
	}
	return nil
}

// overLimit counts a breach of a limit and returns the error that ends the connection for it.
func (c *connection) overLimit(refusal int, reason string) error {
	c.srv.count.refused[refusal].Add(1)
	return &ConnError{http2.ErrCodeEnhanceYourCalm, reason}
}

func (c *connection) settingsFrame(h h2.Head, p []byte) error {
	switch {
	case h.Stream != 0:
		return protocolError("SETTINGS on a stream")
	case h.Flags.Has(http2.FlagSettingsAck) && len(p) > 0, len(p)%6 != 0:
		return &ConnError{http2.ErrCodeFrameSize, "SETTINGS length"}
	case c.in.settings.over(settingsRate, c.in.now):
		return c.overLimit(refusedSettings, "too many SETTINGS")
	}
	c.mu.Lock()
	if h.Flags.Has(http2.FlagSettingsAck) {
		c.mu.settled = true
		c.mu.Unlock()
		return nil
	}
	for ; len(p) > 0; p = p[6:] {
		s := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(p)), Val: binary.BigEndian.Uint32(p[2:])}
		if err := c.applySetting(s); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	c.mu.Out = h2.AppendSettingsAck(c.mu.Out)
	c.pump()
	err := c.acknowledged()
	c.mu.Unlock()
	if err == nil && !c.in.opened {
		c.established()
	}
	return err
}

// applySetting takes over one setting of the peer; mu is held.
func (c *connection) applySetting(s http2.Setting) error {
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.mu.coder.limit(s.Val)
	case http2.SettingEnablePush:
		if s.Val > 1 {
			return protocolError("bad ENABLE_PUSH")
		}
	case http2.SettingInitialWindowSize:
		if s.Val > h2.MaxWindow || !c.setInitialWindow(int64(s.Val)) {
			return &ConnError{http2.ErrCodeFlowControl, "initial window too large"}
		}
	case http2.SettingMaxFrameSize:
		if s.Val < h2.MinFrame || s.Val > 1<<24-1 {
			return protocolError("bad MAX_FRAME_SIZE")
		}
		// The server sends no frame above h2.MinFrame, the least that a peer may ask for.
	}
	return nil
}

func (c *connection) resetFrame(h h2.Head, p []byte) error {
	switch {
	case len(p) != 4:
		return &ConnError{http2.ErrCodeFrameSize, "RST_STREAM length"}
	case h.Stream == 0 || c.idleStream(h.Stream):
		return protocolError("RST_STREAM on an idle stream")
	}
	if c.abandon(h.Stream) && h.Stream > c.in.young {
		return c.resetCounted()
	}
	return nil
}

// abandon ends a stream without an answer: the peer has cancelled it, or has broken a rule. It
// says whether there was anything to end.
func (c *connection) abandon(stream uint32) bool {
	known := c.dropRequest(stream)
	c.mu.Lock()
	k, waiting := c.mu.open[stream]
	if waiting {
		c.closeCall(stream, k)
	}
	known = c.mu.sender.cancel(stream) || waiting || known
	delete(c.mu.credit, stream)
	c.mu.Unlock()
	if waiting && k&callReceiving == 0 {
		c.srv.handler.Cancel(c, rpc.CallID(stream))
	}
	return known
}

// resetStream ends a stream for an error of the peer.
func (c *connection) resetStream(stream uint32, code http2.ErrCode) error {
	c.srv.count.protocol(code)
	c.abandon(stream)
	c.mu.Lock()
	c.mu.Out = h2.AppendReset(c.mu.Out, stream, code)
	c.mu.Unlock()
	c.noteEndedEarly(stream)
	return c.resetCounted()
}

// resetCounted counts a stream that came to nothing.
func (c *connection) resetCounted() error {
	if c.in.resets.over(resetRate, c.in.now) {
		return c.overLimit(refusedResets, "too many streams reset")
	}
	return nil
}

// noteEndedEarly remembers for a while that the server ended a stream which the peer may not have ended:
// what still comes for it is ignored.
func (c *connection) noteEndedEarly(stream uint32) {
	if len(c.in.endedEarly) < rememberedResets {
		c.in.endedEarly = append(c.in.endedEarly, stream)
		return
	}
	c.in.endedEarly[c.in.endedEarlyAt] = stream
	c.in.endedEarlyAt = (c.in.endedEarlyAt + 1) % rememberedResets
}

// idleStream says whether the peer has not opened the stream yet.
func (c *connection) idleStream(stream uint32) bool {
	return stream > c.in.highest && !c.in.refusing || stream%2 == 0
}

func (c *connection) priorityFrame(h h2.Head, p []byte) error {
	switch {
	case h.Stream == 0:
		return protocolError("PRIORITY without a stream")
	case len(p) != 5:
		return c.resetStream(h.Stream, http2.ErrCodeFrameSize)
	case binary.BigEndian.Uint32(p)&h2.MaxWindow == h.Stream:
		return c.resetStream(h.Stream, http2.ErrCodeProtocol)
	}
	return c.idleFrame()
}

// idleFrame counts a frame that does nothing for a call.
func (c *connection) idleFrame() error {
	if c.in.idle.over(idleRate, c.in.now) {
		return c.overLimit(refusedIdleFrames, "too many frames without a request")
	}
	return nil
}
