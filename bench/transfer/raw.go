package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Bare sockets speak the least there is: the size of a message in 8 bytes, the message, and a byte that says that it has come;
// or, where the size is 0, 1 KiB that comes back.
const sizeBytes = 8

// serveRaw answers bare connections, each by a goroutine of its own.
func serveRaw(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = answerRaw(c) // the other process ends it
		}()
	}
}

func answerRaw(c net.Conn) error {
	var size [sizeBytes]byte
	var data []byte
	for {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return err
		}
		n, answer := binary.LittleEndian.Uint64(size[:]), 1
		if n == 0 {
			n, answer = smallBytes, smallBytes
		}
		if uint64(len(data)) < n {
			data = make([]byte, n)
		}
		if _, err := io.ReadFull(c, data[:n]); err != nil {
			return err
		}
		if _, err := c.Write(data[:answer]); err != nil {
			return err
		}
	}
}

// rawConns are bare connections to the far process.
type rawConns []net.Conn

func dialRaw(ctx context.Context, address string, n int) (all rawConns, err error) {
	for range n {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (r rawConns) close() {
	for _, c := range r {
		c.Close()
	}
}

// move sends a message, an equal part on each connection, chunk bytes a write, and returns when all of it has come.
func (r rawConns) move(message []byte, chunk int) (time.Duration, error) {
	errs := make([]error, len(r))
	begun := time.Now()
	var all sync.WaitGroup
	for i, c := range r {
		part := message[len(message)*i/len(r) : len(message)*(i+1)/len(r)]
		all.Go(func() { errs[i] = sendPart(c, part, chunk) })
	}
	all.Wait()
	return time.Since(begun), errors.Join(errs...)
}

func sendPart(c net.Conn, part []byte, chunk int) error {
	if _, err := c.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part)))); err != nil {
		return err
	}
	for len(part) > 0 {
		n := min(chunk, len(part))
		if _, err := c.Write(part[:n]); err != nil {
			return err
		}
		part = part[n:]
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// trips sends 1 KiB there and back, and returns how long each trip took.
func (r rawConns) trips(n int) ([]time.Duration, error) {
	out, back := make([]byte, sizeBytes+smallBytes), make([]byte, smallBytes)
	took := make([]time.Duration, n)
	for i := range took {
		begun := time.Now()
		if _, err := r[0].Write(out); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(r[0], back); err != nil {
			return nil, err
		}
		took[i] = time.Since(begun)
	}
	return took, nil
}
