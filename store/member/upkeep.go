package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// upkeepInterval is how often a member looks at its database.
const upkeepInterval = 10 * time.Second

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

func (m *Member) tendOrWarn(ctx context.Context) {
	if err := m.tend(ctx); err != nil && ctx.Err() == nil {
		m.log.Warn("upkeep of the etcd member", "err", err)
	}
}

// tend returns free space to the disk once the database has used half of its quota and most of that is
// free; and makes room at once when the quota is reached.
func (m *Member) tend(ctx context.Context) error {
	full, err := m.full(ctx)
	if err != nil {
		return err
	}
	if full {
		return m.Reclaim(ctx)
	}
	size, used := m.etcd.Server.Backend().Size(), m.etcd.Server.Backend().SizeInUse()
	if size > m.quota/2 && used < size/2 {
		m.log.Info("defragmenting the etcd member", "bytes", size, "used", used)
		return m.etcd.Server.Backend().Defrag()
	}
	return nil
}

// full says whether this member has raised the alarm that its quota is reached: then the whole cluster
// takes no more writes.
func (m *Member) full(ctx context.Context) (bool, error) {
	alarms, err := m.client.AlarmList(ctx)
	if err != nil {
		return false, err
	}
	for _, a := range alarms.Alarms {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE && a.MemberID == uint64(m.etcd.Server.MemberID()) {
			return true, nil
		}
	}
	return false, nil
}

// Reclaim drops the history of the cluster, returns the free space of this member to the disk, and
// clears its alarm if that has made room. A member does so by itself some seconds after its quota was
// reached; other members on which it was reached do the same.
func (m *Member) Reclaim(ctx context.Context) error {
	resp, err := m.client.Get(ctx, "serry", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("member: %w", err)
	}
	_, err = m.client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		return fmt.Errorf("member: compact: %w", err)
	}
	if err := m.etcd.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("member: defragment: %w", err)
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
