package main

import (
	"io"
	"net"
	"time"
)

// What sockets can do on this machine. A measurement that fails is zero: the bound is then too low, and never too high.

// pingPong is the least time, in microseconds, in which 8 bytes go there and back over a socket of TCP.
func pingPong() float64 {
	a, b, err := pair()
	if err != nil {
		return 0
	}
	defer a.Close()
	go echo(b)
	return least(attempts, func() time.Duration {
		var word [8]byte
		begun := time.Now()
		for range trips {
			if _, err := a.Write(word[:]); err != nil {
				return 0
			}
			if _, err := io.ReadFull(a, word[:]); err != nil {
				return 0
			}
		}
		return time.Since(begun) / trips
	})
}

// echo sends back what comes.
func echo(c net.Conn) {
	defer c.Close()
	var word [8]byte
	for {
		n, err := c.Read(word[:])
		if err != nil {
			return
		}
		if _, err := c.Write(word[:n]); err != nil {
			return
		}
	}
}

// streaming is the least time, in microseconds a byte, that each of some ranks takes to send while all others send, too: over one
// connection of its own, or over two, whichever is faster.
func streaming(ranks int) float64 {
	best := 0.0
	for lanes := 1; lanes <= 2; lanes++ {
		perByte := least(attempts, func() time.Duration { return stream(ranks, lanes) }) / microBytes
		if best == 0 || perByte > 0 && perByte < best {
			best = perByte
		}
	}
	return best
}

// stream is how long all ranks take to send a great number of bytes over a number of connections each.
func stream(ranks, lanes int) time.Duration {
	type end struct{ from, to net.Conn }
	var ends []end
	defer func() {
		for _, e := range ends {
			e.from.Close()
			e.to.Close()
		}
	}()
	for range ranks * lanes {
		a, b, err := pair()
		if err != nil {
			return 0
		}
		ends = append(ends, end{a, b})
	}
	each := int64(microBytes / lanes)
	return onAll(2*len(ends), func(i int) {
		e, chunk := ends[i/2], make([]byte, 1<<20)
		for done := int64(0); done < each; {
			n, err := 0, error(nil)
			if i%2 == 0 {
				n, err = e.from.Write(chunk[:min(int64(len(chunk)), each-done)])
			} else {
				n, err = e.to.Read(chunk)
			}
			if err != nil {
				return
			}
			done += int64(n)
		}
	})
}

// pair is the two ends of a connection of TCP.
func pair() (a, b net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if b, err = l.Accept(); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}
