package member

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Alarm does what a member does that has found its quota reached.
func (m *Member) Alarm(ctx context.Context) error {
	_, err := m.etcd.Server.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: uint64(m.etcd.Server.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	return err
}

// Full are the members that have found their quota reached.
func (m *Member) Full() []uint64 { return m.full() }

// TurnKey is the key of the member that defragments its database.
const TurnKey = turnKey

// Client is the client of a member.
func (m *Member) Client() *clientv3.Client { return m.client }

// Wants says whether a member should defragment its database.
func (m *Member) Wants() bool {
	return worthDefragmenting(m.Size(), m.etcd.Server.Backend().SizeInUse(), m.quota)
}

// Tend does once what a member does again and again.
func (m *Member) Tend(ctx context.Context) error { return m.tend(ctx) }

// Size is the size of the database.
func (m *Member) Size() int64 { return m.etcd.Server.Backend().Size() }

// Leads says whether this member leads etcd.
func (m *Member) Leads() bool {
	return uint64(m.etcd.Server.Leader()) == uint64(m.etcd.Server.MemberID())
}

// ReplaceUntil is Replace that is interrupted after a step.
func ReplaceUntil(ctx context.Context, dir, address, step string) error {
	return replace(ctx, dir, address, func(taken string) error {
		if taken == step {
			return ErrInterrupted
		}
		return nil
	})
}

// ErrInterrupted is what it returns.
var ErrInterrupted = errors.New("interrupted")

// CommitAll is what happens to the log of a member before its folder is read.
func CommitAll(dir string) error { return commitAll(dir) }
