package member

import (
	"context"
	"io"
	"net/http"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/serry-dev/serry/store"
)

const (
	probePatience = 150 * time.Millisecond
	movePatience  = 500 * time.Millisecond
)

// apart is the store of a member. The leader of the journal lets another member lead etcd: a process that
// dies then takes one of the two leaderships with it and not both, and the next leader of the journal
// does not have to wait until etcd has elected one.
type apart struct {
	store.Store
	member *Member
}

// Campaign implements [store.Store]. Nothing has been written yet when it returns: etcd drops what comes
// while its leadership moves.
func (a apart) Campaign(ctx context.Context, who store.Candidate) (store.Reign, error) {
	r, err := a.Store.Campaign(ctx, who)
	if err == nil {
		a.member.step(ctx)
	}
	return r, err
}

// step gives the leadership of etcd to another member, if this one has it and another answers.
func (m *Member) step(ctx context.Context) {
	me := uint64(m.etcd.Server.MemberID())
	if uint64(m.etcd.Server.Leader()) != me {
		return
	}
	next, ok := m.lively(ctx)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	if err := m.etcd.Server.MoveLeader(ctx, me, next); err != nil {
		m.log.Debug("etcd is still led by the leader of the journal", "err", err)
	}
}

// lively finds another member that answers at once. To be connected is not enough: a process that stands
// still is.
func (m *Member) lively(ctx context.Context) (id uint64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	t, err := transport.NewTransport(m.peerTLS, probePatience)
	if err != nil {
		return 0, false
	}
	defer t.CloseIdleConnections()
	others := m.etcd.Server.Cluster().Members()
	found := make(chan uint64, len(others)) // has room for all, so that no sender waits for a reader
	asked := 0
	for _, o := range others {
		if o.ID == m.etcd.Server.MemberID() || o.IsLearner || len(o.PeerURLs) == 0 {
			continue
		}
		asked++
		m.work.Go(func() {
			if !answers(ctx, t, o.PeerURLs[0]+"/version") {
				found <- 0
				return
			}
			found <- uint64(o.ID)
		})
	}
	for range asked {
		if id := <-found; id != 0 {
			return id, true
		}
	}
	return 0, false
}

func answers(ctx context.Context, t http.RoundTripper, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	reply, err := t.RoundTrip(request)
	if err != nil {
		return false
	}
	defer reply.Body.Close()
	_, err = io.Copy(io.Discard, reply.Body)
	return err == nil && reply.StatusCode == http.StatusOK
}
