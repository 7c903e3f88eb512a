package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
)

const (
	// tellAfter is how long etcd may be out of reach before the log says so: longer than an election.
	tellAfter = time.Second

	// tellEvery is how often it says so.
	tellEvery = 10 * time.Second
)

// trouble is what a store knows of the way to etcd. Everything that is asked goes on asking, without a
// word; this is the text for an operator who looks for the reason.
type trouble struct {
	log    *slog.Logger // or nil
	client *clientv3.Client

	mu struct {
		sync.Mutex
		since time.Time // of the first request without an answer after the last with one; or zero
		told  time.Time // or zero
	}
}

// failed notes a request that got no answer.
func (t *trouble) failed(err error) {
	if lasts, due := t.due(time.Now()); due {
		t.log.Warn("etcd does not answer", "for", lasts.Round(time.Second/10), "err", t.reason(err))
	}
}

// due says how long the trouble lasts, and whether it is time to tell of it.
func (t *trouble) due(now time.Time) (lasts time.Duration, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.since.IsZero() {
		t.mu.since = now
	}
	lasts = now.Sub(t.mu.since)
	if t.log == nil || lasts < tellAfter || now.Sub(t.mu.told) < tellEvery {
		return lasts, false
	}
	t.mu.told = now
	return lasts, true
}

// explain adds to the end of a wait why there was no answer, if the wait was a long one.
func (t *trouble) explain(cause, last error) error {
	t.mu.Lock()
	since := t.mu.since
	t.mu.Unlock()
	if last == nil || since.IsZero() || time.Since(since) < tellAfter {
		return cause
	}
	return fmt.Errorf("%w: etcd: %s", cause, t.reason(last))
}

// reason is why there is no answer. The client says of all its calls that they took too long; the
// connection below it knows more. A member inside this process has none.
func (t *trouble) reason(err error) string {
	conn := t.client.ActiveConnection()
	if conn == nil {
		return status.Convert(err).Message()
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstAttempt)
	defer cancel()
	_, why := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	if why == nil { // this one does; it waits for the others
		return status.Convert(err).Message()
	}
	return status.Convert(why).Message()
}

// passed notes a request that got one.
func (t *trouble) passed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.told.IsZero() {
		t.log.Info("etcd answers again", "outage", time.Since(t.mu.since).Round(time.Second/10))
	}
	t.mu.since, t.mu.told = time.Time{}, time.Time{}
}
