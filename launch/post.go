package launch

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/serry-dev/serry/relay"
)

// A post is the relay of one attempt on one host, for a service that others run. It has an address of
// its own, which refuses everybody once the attempt has ended, so that what may be left of it cannot
// reach the next one (A-SIDE-19).
type post struct {
	attempt int
	relay   *relay.Relay
	at      string
	served  chan error
}

func openPost(cfg relay.Config, attempt int) (*post, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r, err := relay.New(cfg)
	if err != nil {
		l.Close()
		return nil, err
	}
	p := &post{attempt: attempt, relay: r, at: l.Addr().String(), served: make(chan error, 1)}
	go func() { p.served <- r.Serve(l) }()
	return p, nil
}

// retire refuses everybody from now on. What the relay has to say about its tasks it still says: in an
// outage that may take a while.
func (p *post) retire() error {
	p.relay.Retire()
	return <-p.served
}

// postFarewell is how long the goodbye of a relay may take.
const postFarewell = 2 * time.Second

// close ends a post that has retired.
func (p *post) close() {
	ctx, cancel := context.WithTimeout(context.Background(), postFarewell)
	defer cancel()
	p.relay.Shutdown(ctx)
}

// posts are the relays of a host: that of the present attempt, and the one before, which may still have
// something to say. The zero value has none.
type posts struct {
	mu struct {
		sync.Mutex
		present, former *post
	}
}

// of is the post of an attempt, which is opened if it is a new one. The address of a new post is never
// that of the one before, which keeps it until then.
func (p *posts) of(cfg relay.Config, attempt int) (*post, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.present != nil && p.mu.present.attempt == attempt {
		return p.mu.present, nil
	}
	fresh, err := openPost(cfg, attempt)
	if err != nil {
		return nil, err
	}
	err = p.end()
	p.mu.present = fresh
	return fresh, err
}

// now is the post of the present attempt, or nil.
func (p *posts) now() *post {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.present
}

// end retires the present post, and closes the one before. It needs mu.
func (p *posts) end() (err error) {
	if p.mu.former != nil {
		p.mu.former.close()
	}
	if p.mu.present != nil {
		err = p.mu.present.retire()
	}
	p.mu.former, p.mu.present = p.mu.present, nil
	return err
}

// close ends all posts.
func (p *posts) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.end()
	if p.mu.former != nil {
		p.mu.former.close()
		p.mu.former = nil
	}
	return err
}
