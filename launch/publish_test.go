package launch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/rpc"
)

// A slowLine is a transport to a service that takes its time.
type slowLine struct {
	takes  time.Duration
	stored chan struct{} // one for each call that has ended
}

func (l *slowLine) Call(ctx context.Context, _ string, _ []byte) ([]byte, rpc.Status, error) {
	select {
	case <-time.After(l.takes):
		l.stored <- struct{}{}
		return nil, rpc.Status{}, nil
	case <-ctx.Done():
		return nil, rpc.Status{}, ctx.Err()
	}
}

func (l *slowLine) Close() error { return nil }

// What a job says last is stored before its report is made, if the service takes it.
func TestSettle(t *testing.T) {
	clause.Cite(t, "D-EV-7")
	for _, c := range []struct {
		name  string
		takes time.Duration
		want  int
		after time.Duration
	}{
		{"at once", 0, 1, 0},
		{"soon", 300 * time.Millisecond, 2, 600 * time.Millisecond},
		{"never", time.Hour, 0, settlePatience},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				line := &slowLine{c.takes, make(chan struct{}, 4)}
				p := newPublisher(line)
				defer p.close()
				begun := time.Now()
				p.publish("a", nil)
				if c.want != 1 {
					synctest.Wait() // it is being stored
					p.publish("b", nil)
				}
				p.settle()
				if n, took := len(line.stored), time.Since(begun); n != c.want || took != c.after {
					t.Errorf("settle() with %d values stored after %v; want %d, %v", n, took, c.want, c.after)
				}
			})
		})
	}
}
