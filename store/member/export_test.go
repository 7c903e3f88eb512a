package member

import "context"

// Tend does once what a member does again and again.
func (m *Member) Tend(ctx context.Context) error { return m.tend(ctx) }

// Size is the size of the database.
func (m *Member) Size() int64 { return m.etcd.Server.Backend().Size() }
