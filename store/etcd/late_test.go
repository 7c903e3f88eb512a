package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/internal/lab/faultyetcd"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

// never is more requests than a test makes.
const never = math.MaxInt32

// A writer is one server of a service, whose way to etcd has faults.
type writer struct {
	link   *faultyetcd.Link
	client *clientv3.Client
	store  store.Store
	reign  store.Reign
}

// A fleet is servers, one after the other, on one etcd.
type fleet struct {
	socket string
	plain  *clientv3.Client // without faults
	prefix string

	planted plant.Faults
}

func newFleet(t *testing.T, prefix string, cfg member.Config) fleet {
	t.Helper()
	cfg.Dir = folder(t)
	_, client := one(t, cfg)
	return fleet{socket: "unix:" + cfg.Dir + "/client.sock", plain: client, prefix: prefix}
}

// lead starts a server that leads. Its faults begin then.
func (f fleet) lead(t *testing.T, plan faultyetcd.Plan) *writer {
	t.Helper()
	s := &writer{link: faultyetcd.New(plan)}
	var err error
	if s.client, err = s.link.Dial(f.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	s.store = open(t, etcd.Config{Client: s.client, Prefix: f.prefix, PartBytes: 1000, LeaseTTL: time.Minute, Compact: true, Planted: f.planted})
	if s.reign, err = s.store.Campaign(t.Context(), store.Candidate{Address: "a"}); err != nil {
		t.Fatalf("Campaign() = %v", err)
	}
	return s
}

// replace ends a server without a word, and lets another lead, whose way to etcd has no faults.
func (f fleet) replace(t *testing.T, s *writer) *writer {
	t.Helper()
	s.link.Crash()
	etcd.Kill(s.store)
	if err := etcd.Expire(t.Context(), f.plain, f.prefix); err != nil {
		t.Fatal(err)
	}
	return f.lead(t, nil)
}

// A model is what was acknowledged.
type model struct {
	conform.Loaded
	values map[string][]byte // that a batch or the snapshot names
}

func newModel() *model { return &model{values: make(map[string][]byte)} }

func (m *model) append(ctx context.Context, r store.Reign, batch string) error {
	err := r.Append(ctx, []byte(batch))
	if err == nil {
		m.Batches = append(m.Batches, batch)
	}
	return err
}

func (m *model) put(ctx context.Context, r store.Reign, name string) error {
	value := conform.Bytes(name, 2500)
	err := r.Put(ctx, conform.Ref(value), value)
	if err == nil {
		err = m.append(ctx, r, "names "+name)
	}
	if err == nil {
		m.values[name] = value
	}
	return err
}

func (m *model) save(ctx context.Context, r store.Reign, snapshot string) error {
	var keep []coord.Ref
	for _, v := range m.values {
		keep = append(keep, conform.Ref(v))
	}
	err := r.Save(ctx, r.Mark(), []byte(snapshot), keep)
	if err == nil {
		m.Loaded = conform.Loaded{Snapshot: snapshot, Saved: true}
	}
	return err
}

// check compares a journal with what was acknowledged.
func (m *model) check(t *testing.T, when string, j store.Journal) {
	t.Helper()
	if diff := cmp.Diff(m.Loaded, conform.Load(t, j)); diff != "" {
		t.Errorf("%s: Load() differs (-want +got):\n%s", when, diff)
	}
	for name, want := range m.values {
		if got, err := j.Get(t.Context(), conform.Ref(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: Get(%s) = %d bytes, %v; want the value", when, name, len(got), err)
		}
	}
}

// history is a short life of a journal, in which each write of the store occurs, and each kind of key is
// written, removed and written again.
func (m *model) history(ctx context.Context, r store.Reign) error {
	large := string(conform.Bytes("large", 2500))
	steps := []func() error{
		func() error { return m.append(ctx, r, "one") },
		func() error { return m.append(ctx, r, large) },
		func() error { return m.put(ctx, r, "value") },
		func() error { return m.save(ctx, r, "first "+large) },
		func() error { return m.append(ctx, r, "two") },
		func() error { return m.put(ctx, r, "value") }, // is there
		func() error { delete(m.values, "value"); return m.save(ctx, r, "second "+large) },
		func() error { return m.append(ctx, r, large) },
		func() error { return m.save(ctx, r, "third") }, // removes the value
		func() error { return m.put(ctx, r, "value") },  // is written again
		func() error { return m.append(ctx, r, "three") },
		func() error { return m.save(ctx, r, "fourth") },
		func() error { return m.put(ctx, r, "value") },
		func() error { return m.append(ctx, r, "four") },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// A write whose first attempt is performed last changes nothing that was acknowledged: whichever write it
// is, and whatever was written since.
func TestLateWrites(t *testing.T) {
	lab.Clause(t, "C-LOG-2", "C-LOG-5")
	f := newFleet(t, "", member.Config{})
	for n, more := 0, true; more; n++ {
		for i, after := range []int{3, 12, never} {
			if (testing.Short() || search.Pick(false, true)) && (n+i)%3 != 0 {
				continue // each write is late once
			}
			f.prefix = fmt.Sprintf("/late/%d/%d/", n, after)
			what := ""
			writes := 0
			s := f.lead(t, func(r faultyetcd.Request) (faultyetcd.Fault, int) {
				if !r.Write {
					return faultyetcd.None, 0
				}
				if writes++; writes != n+1 {
					return faultyetcd.None, 0
				}
				what = fmt.Sprintf("write %d (%s %v), late by %d", n, r.Method, r.Puts, after)
				return faultyetcd.Late, after
			})
			f.late(t, s, &what)
			more = writes > n
		}
	}
}

// late runs a history in which one write is late, and looks at what is left of it.
func (f fleet) late(t *testing.T, s *writer, what *string) {
	t.Helper()
	m := newModel()
	if err := m.history(t.Context(), s.reign); err != nil {
		t.Fatalf("%s: %v", *what, err)
	}
	s.link.Deliver(t.Context())
	m.check(t, *what+", same leader", s.reign)
	next := f.replace(t, s)
	m.check(t, *what+", next leader", next.reign)
	for _, name := range []string{"fifth", "sixth"} { // after which nothing is left of what came late
		if err := m.save(t.Context(), next.reign, name); err != nil {
			t.Fatalf("%s: Save() = %v", *what, err)
		}
	}
	m.check(t, *what+", after another snapshot", next.reign)
	parts, err := f.plain.Get(t.Context(), f.prefix+"blob/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || parts.Count != 4 {
		t.Errorf("%s: %d parts are left (%v); want 3 of the value and 1 of the snapshot", *what, parts.Count, err)
	}
	if err := next.store.Close(); err != nil {
		t.Errorf("%s: Close() = %v", *what, err)
	}
	next.client.Close()
	s.client.Close()
}

// A Save that was given up does not come back after a later one.
func TestSaveGivenUp(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	f := newFleet(t, "/serry/", member.Config{})
	ctx, giveUp := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	late := false
	s := f.lead(t, func(r faultyetcd.Request) (faultyetcd.Fault, int) {
		if late || len(r.Puts) != 1 || !strings.HasSuffix(r.Puts[0], "/snapshot") {
			return faultyetcd.None, 0
		}
		late = true
		giveUp(stopped)
		return faultyetcd.Late, never
	})
	m := newModel()
	if err := m.append(t.Context(), s.reign, "one"); err != nil {
		t.Fatal(err)
	}
	if err := s.reign.Save(ctx, s.reign.Mark(), conform.Bytes("given up", 2500), nil); !errors.Is(err, stopped) {
		t.Fatalf("Save() = %v; want %v", err, stopped)
	}
	if err := errors.Join(m.append(t.Context(), s.reign, "two"), m.save(t.Context(), s.reign, "second"), m.append(t.Context(), s.reign, "three")); err != nil {
		t.Fatal(err)
	}
	s.link.Deliver(t.Context())
	m.check(t, "afterwards", f.replace(t, s).reign)
	parts, err := f.plain.Get(t.Context(), f.prefix+"blob/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || parts.Count != 1 {
		t.Errorf("%d parts are left (%v); want that of the second snapshot", parts.Count, err)
	}
}

// Put does not trust a key whose parts are missing: it writes the value again.
func TestPutMendsAValueWithoutParts(t *testing.T) {
	lab.Clause(t, "C-LOG-5")
	f := newFleet(t, "/serry/", member.Config{})
	s := f.lead(t, nil)
	m := newModel()
	if err := m.put(t.Context(), s.reign, "value"); err != nil {
		t.Fatal(err)
	}
	parts, err := f.plain.Get(t.Context(), "/serry/blob/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(parts.Kvs) != 3 {
		t.Fatalf("%d parts, %v; want 3", len(parts.Kvs), err)
	}
	if _, err := f.plain.Delete(t.Context(), string(parts.Kvs[1].Key)); err != nil {
		t.Fatal(err)
	}
	if err := m.put(t.Context(), s.reign, "value"); err != nil {
		t.Fatal(err)
	}
	m.check(t, "after Put", s.reign)
}
