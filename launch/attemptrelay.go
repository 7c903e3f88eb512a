package launch

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/serry-dev/serry/relay"
)

// An attemptRelay is the relay of one attempt on one host, for a service that others run. It has an address of
// its own, which refuses all connections once the attempt has ended, so that what may be left of it cannot
// reach the next one (A-SIDE-19).
type attemptRelay struct {
	attempt int
	relay   *relay.Relay
	at      string
	served  chan error
}

func openAttemptRelay(cfg relay.Config, attempt int) (*attemptRelay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r, err := relay.New(cfg)
	if err != nil {
		l.Close()
		return nil, err
	}
	p := &attemptRelay{attempt: attempt, relay: r, at: l.Addr().String(), served: make(chan error, 1)}
	go func() { p.served <- r.Serve(l) }()
	return p, nil
}

// retire refuses all connections from now on. What the relay has to say about its tasks it still says: in an
// outage that may take a while.
func (p *attemptRelay) retire() error {
	p.relay.Retire()
	return <-p.served
}

// relayFarewell is how long the goodbye of a relay may take.
const relayFarewell = 2 * time.Second

// close ends a relay that has retired.
func (p *attemptRelay) close() {
	ctx, cancel := context.WithTimeout(context.Background(), relayFarewell)
	defer cancel()
	p.relay.Shutdown(ctx)
}

// attemptRelays are the relays of a host: that of the present attempt, and the one before, which may still have
// something to say. The zero value has none.
type attemptRelays struct {
	mu struct {
		sync.Mutex
		present, former *attemptRelay
	}
}

// of is the relay of an attempt, which is opened if it is a new one. The address of a new relay is never
// that of the one before, which keeps it until then.
func (p *attemptRelays) of(cfg relay.Config, attempt int) (*attemptRelay, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.present != nil && p.mu.present.attempt == attempt {
		return p.mu.present, nil
	}
	fresh, err := openAttemptRelay(cfg, attempt)
	if err != nil {
		return nil, err
	}
	err = p.end()
	p.mu.present = fresh
	return fresh, err
}

// now is the relay of the present attempt, or nil.
func (p *attemptRelays) now() *attemptRelay {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.present
}

// end retires the present relay, and closes the one before. It needs mu.
func (p *attemptRelays) end() (err error) {
	if p.mu.former != nil {
		p.mu.former.close()
	}
	if p.mu.present != nil {
		err = p.mu.present.retire()
	}
	p.mu.former, p.mu.present = p.mu.present, nil
	return err
}

// close ends all relays.
func (p *attemptRelays) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.end()
	if p.mu.former != nil {
		p.mu.former.close()
		p.mu.former = nil
	}
	return err
}
