package member

import "context"

// Tend does once what a member does again and again.
func (m *Member) Tend(ctx context.Context) error { return m.tend(ctx) }

// Size is the size of the database.
func (m *Member) Size() int64 { return m.etcd.Server.Backend().Size() }

// Leads says whether this member leads etcd.
func (m *Member) Leads() bool {
	return uint64(m.etcd.Server.Leader()) == uint64(m.etcd.Server.MemberID())
}
