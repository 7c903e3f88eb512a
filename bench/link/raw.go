package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Bare sockets speak the least there is: an order of 16 bytes, what and how much, then either bytes that are
// answered by one when all have come, or 8 bytes at a time that come back, or nothing: the number is the size of
// socket buffers.
const (
	rawBulk = 1 + iota
	rawTrips
	rawBuffers
)

const (
	orderBytes = 16
	tripBytes  = 8
)

// serveRaw answers bare connections, each by a goroutine of its own.
func serveRaw(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = answerRaw(c) // the other process ends it
		}()
	}
}

func answerRaw(c net.Conn) error {
	var order [orderBytes]byte
	var memory []byte
	for {
		if _, err := io.ReadFull(c, order[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint64(order[8:])
		switch what := binary.LittleEndian.Uint64(order[:]); what {
		case rawBulk:
			if uint64(len(memory)) < n {
				memory = make([]byte, n)
			}
			if _, err := io.ReadFull(c, memory[:n]); err != nil {
				return err
			}
			if _, err := c.Write([]byte{1}); err != nil {
				return err
			}
		case rawTrips:
			if err := echo(c, n); err != nil {
				return err
			}
		case rawBuffers:
			if err := setBuffers(c, int(n)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("order %d", what)
		}
	}
}

// echo sends messages back.
func echo(c net.Conn, n uint64) error {
	var b [tripBytes]byte
	for range n {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if _, err := c.Write(b[:]); err != nil {
			return err
		}
	}
	return nil
}

// rawConns are bare connections to the far process.
type rawConns []net.Conn

// dialRaw makes n connections. Their socket buffers have a fixed size, at both ends, unless that is 0.
func dialRaw(ctx context.Context, address string, n, buffers int) (rawConns, error) {
	var all rawConns
	for range n {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			all = append(all, c)
			if buffers > 0 {
				err = errors.Join(setBuffers(c, buffers), writeOrder(c, rawBuffers, buffers))
			}
		}
		if err != nil {
			all.close()
			return nil, err
		}
	}
	return all, nil
}

// setBuffers gives a socket buffers whose size does not change, as far as net.core.wmem_max and rmem_max allow.
func setBuffers(c net.Conn, n int) error {
	tcp := c.(*net.TCPConn)
	return errors.Join(tcp.SetReadBuffer(n), tcp.SetWriteBuffer(n))
}

func (r rawConns) close() {
	for _, c := range r {
		c.Close()
	}
}

// sender sends a message as often as count says, and returns how long that took.
func (r rawConns) sender(message []byte, chunk int) func(count int) (time.Duration, error) {
	return func(count int) (time.Duration, error) {
		begun := time.Now()
		for range count {
			if err := r.send(message, chunk); err != nil {
				return 0, err
			}
		}
		return time.Since(begun), nil
	}
}

// send moves a message, an equal part on each connection, chunk bytes a write, and returns when all of
// it has come.
func (r rawConns) send(message []byte, chunk int) error {
	errs := make([]error, len(r))
	var all sync.WaitGroup
	for i, c := range r {
		part := message[len(message)*i/len(r) : len(message)*(i+1)/len(r)]
		all.Go(func() { errs[i] = sendPart(c, part, chunk) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func sendPart(c net.Conn, part []byte, chunk int) error {
	if err := writeOrder(c, rawBulk, len(part)); err != nil {
		return err
	}
	for len(part) > 0 {
		n := min(chunk, len(part))
		if _, err := c.Write(part[:n]); err != nil {
			return err
		}
		part = part[n:]
	}
	var answer [1]byte
	_, err := io.ReadFull(c, answer[:])
	return err
}

// trips sends 8 bytes there and back, and returns how long each trip took.
func (r rawConns) trips(n int) ([]time.Duration, error) {
	c := r[0]
	if err := writeOrder(c, rawTrips, n); err != nil {
		return nil, err
	}
	var b [tripBytes]byte
	took := make([]time.Duration, n)
	for i := range took {
		begun := time.Now()
		if _, err := c.Write(b[:]); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return nil, err
		}
		took[i] = time.Since(begun)
	}
	return took, nil
}

func writeOrder(c net.Conn, what uint64, n int) error {
	var order [orderBytes]byte
	binary.LittleEndian.PutUint64(order[:], what)
	binary.LittleEndian.PutUint64(order[8:], uint64(n))
	_, err := c.Write(order[:])
	return err
}
