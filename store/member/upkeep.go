package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// upkeepInterval is how often a member looks at its database. That costs no request.
	upkeepInterval = time.Second

	// turnKey is the key of the member that defragments its database. It lives as long as its lease.
	turnKey = "/serry-upkeep/defragments"

	// turnTTL is how long the turn of a member that died lasts.
	turnTTL = 30 * time.Second

	// turnPatience is how long a member whose quota is reached waits for others to which that happened,
	// too, and whose turn comes first.
	turnPatience = time.Minute
)

// upkeep keeps the database small, until ctx ends.
func (m *Member) upkeep(ctx context.Context) {
	t := time.NewTicker(upkeepInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			m.tendOrWarn(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// tendOrWarn logs the same trouble once in a while only.
func (m *Member) tendOrWarn(ctx context.Context) {
	err := m.tend(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	if now := time.Now(); now.Sub(m.warned) >= 10*upkeepInterval {
		m.warned = now
		m.log.Warn("upkeep of the etcd member", "err", err)
	}
}

// tend returns free space to the disk when there is much of it, and makes room at once when the quota is
// reached.
func (m *Member) tend(ctx context.Context) error {
	m.tending.Lock()
	defer m.tending.Unlock()
	if full := m.full(); slices.Contains(full, uint64(m.etcd.Server.MemberID())) {
		return m.reclaimInTurn(ctx, full)
	}
	m.fullSince = time.Time{}
	size, used := m.etcd.Server.Backend().Size(), m.etcd.Server.Backend().SizeInUse()
	if !worthDefragmenting(size, used, m.quota) {
		return nil
	}
	return m.inTurn(ctx, func() error {
		m.log.Info("defragmenting the etcd member", "bytes", size, "used", used)
		return m.defragment()
	})
}

// worthDefragmenting says whether a database should return its free space. etcd counts the size of the file
// against the quota, free space included, so a file that nears its quota is worth it for less.
func worthDefragmenting(size, used, quota int64) bool {
	return size > quota/2 && used < size/2 || size > quota-quota/4 && size-used > quota/8
}

// full are the members that have raised the alarm that their quota is reached, in order: while there is one
// the whole cluster takes no writes.
func (m *Member) full() (ids []uint64) {
	for _, a := range m.etcd.Server.Alarms() {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			ids = append(ids, a.MemberID)
		}
	}
	slices.Sort(ids)
	return ids
}

// inTurn does what makes a member stand still, unless another member is at it: then it is left for a later
// look. Members that all stand still are no majority.
func (m *Member) inTurn(ctx context.Context, do func() error) error {
	if taken, err := m.client.Get(ctx, turnKey, clientv3.WithCountOnly()); err != nil || taken.Count > 0 {
		return err
	}
	lease, err := m.client.Grant(ctx, int64(turnTTL.Seconds()))
	if err != nil {
		return fmt.Errorf("member: %w", err)
	}
	held, release := context.WithCancel(ctx)
	defer release()
	if _, err := m.client.KeepAlive(held, lease.ID); err != nil {
		return fmt.Errorf("member: %w", err)
	}
	defer func() { // with the key; or the lease ends by itself
		_, _ = m.client.Revoke(context.WithoutCancel(ctx), lease.ID)
	}()
	answer, err := m.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(turnKey), "=", 0)).
		Then(clientv3.OpPut(turnKey, m.etcd.Server.Cfg.Name, clientv3.WithLease(lease.ID))).Commit()
	if err != nil {
		return fmt.Errorf("member: %w", err)
	}
	if !answer.Succeeded {
		return nil
	}
	return do()
}

// reclaimInTurn makes room on a member whose quota is reached. etcd takes no key now that could say whose
// turn it is, so the members that are full take turns in the order of their ids, each clearing its alarm
// when it is done. One that does not come to its turn is not waited for for ever.
func (m *Member) reclaimInTurn(ctx context.Context, full []uint64) error {
	if m.fullSince.IsZero() {
		m.fullSince = time.Now()
	}
	first := full[0] == uint64(m.etcd.Server.MemberID())
	turn, err := m.client.Get(ctx, turnKey, clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("member: %w", err)
	}
	if (!first || turn.Count > 0) && time.Since(m.fullSince) < turnPatience {
		return nil
	}
	return m.Reclaim(ctx)
}

// Reclaim drops the history of the cluster, returns the free space of this member to the disk, and
// clears its alarm if that has made room. A member does so by itself some seconds after its quota was
// reached; other members on which it was reached do the same, one after the other.
func (m *Member) Reclaim(ctx context.Context) error {
	resp, err := m.client.Get(ctx, "serry", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("member: %w", err)
	}
	_, err = m.client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		return fmt.Errorf("member: compact: %w", err)
	}
	if err := m.defragment(); err != nil {
		return err
	}
	if size := m.etcd.Server.Backend().Size(); size >= m.quota {
		return fmt.Errorf("member: the journal needs %d bytes, and the quota is %d; raise it", size, m.quota)
	}
	_, err = m.client.AlarmDisarm(ctx, &clientv3.AlarmMember{
		MemberID: uint64(m.etcd.Server.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	if err != nil {
		return fmt.Errorf("member: clear the alarm: %w", err)
	}
	return nil
}

// defragment returns free space to the disk. The member stands still for that long.
func (m *Member) defragment() error {
	if err := m.etcd.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("member: defragment: %w", err)
	}
	return nil
}
