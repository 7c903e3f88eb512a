package launch

import (
	"context"
	"sync"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// A publisher stores values in a service under keys of the launcher, one after the other, on a goroutine of its own. Of
// values that wait only the last is stored.
type publisher struct {
	line client.Transport
	work sync.WaitGroup
	stop context.CancelFunc
	next chan storedValue
}

// A storedValue is what a publisher does next: it stores a value, or says that it has stored those before.
type storedValue struct {
	key    string
	value  []byte
	stored chan struct{} // or nil; to be closed instead
}

// publishTimeout is how long storing a value may take. The service may be in an outage.
const publishTimeout = 10 * time.Second

func newPublisher(line client.Transport) *publisher {
	ctx, stop := context.WithCancel(context.Background())
	p := &publisher{line: line, stop: stop, next: make(chan storedValue, 1)}
	p.work.Go(func() {
		for {
			select {
			case n := <-p.next:
				if n.stored != nil {
					close(n.stored)
				} else {
					storeValue(ctx, p.line, n)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return p
}

// publish stores a value soon, in the place of one that waits. It has one caller at a time.
func (p *publisher) publish(key string, value []byte) {
	select {
	case <-p.next:
	default:
	}
	p.next <- storedValue{key: key, value: value} // there is room
}

// settlePatience is how long the end of a job waits for the last values to be stored.
const settlePatience = time.Second

// settle waits until the service has what was published, but not for long. Nothing may be published meanwhile.
func (p *publisher) settle() {
	stored, late := make(chan struct{}), time.NewTimer(settlePatience)
	defer late.Stop()
	select {
	case p.next <- storedValue{stored: stored}:
	case <-late.C:
		return
	}
	select {
	case <-stored:
	case <-late.C:
	}
}

// storeValue stores a value. One that cannot be stored is lost: the next one says more.
func storeValue(ctx context.Context, line client.Transport, n storedValue) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	path, body, err := wire.Serry.Request(coord.InsertKeyValue{Key: n.key, Value: n.value, Overwrite: true})
	if err == nil {
		_, _, _ = line.Call(ctx, path, body)
	}
}

// close gives up what waits, and waits for the goroutine.
func (p *publisher) close() {
	p.stop()
	p.work.Wait()
}
