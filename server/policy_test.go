package server

import (
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// holder is a peer with a certificate.
type holder []string

func (h holder) PeerURIs() []string { return h }

// Every call has a line in the policy, and only calls have.
func TestPolicy(t *testing.T) {
	clause.Cite(t, "SEC-31")
	for k := range coord.Kind(coord.Kinds) {
		row := k.Row()
		if call := row.Name != ""; call != (policy[k] != rightNone) {
			t.Errorf("kind %d, %q: the policy says %d", k, row.Name, policy[k])
		}
		if row.ForTask && policy[k] != rightOwn {
			t.Errorf("%s acts for a task; the policy says %d, want that the certificate names the task", row.Name, policy[k])
		}
	}
}

// A certificate gives the rights that its names have, and no other.
func TestRights(t *testing.T) {
	clause.Cite(t, "SEC-31", "SEC-32")
	b := newBinding("spiffe://lab/{job}/{task}", []coord.Job{{Name: "worker", Tasks: 2}, {Name: "a b", Tasks: 1}})
	own, other, none := serry.TaskID{Job: "worker", Index: 0}, serry.TaskID{Job: "worker", Index: 1}, serry.TaskID{}
	for _, tt := range []struct {
		name string
		peer any
		want []bool // own for task 0, for none; keys of task 0, of task 1, of none; look; rule
	}{
		{"no certificate", struct{}{}, []bool{false, false, false, false, false, true, false}},
		{"names nothing", holder{}, []bool{false, false, false, false, false, true, false}},
		{"names a stranger", holder{"spiffe://lab/worker/7", "spiffe://lab/worker/00", "spiffe://lab/worker/0/x"}, []bool{false, false, false, false, false, true, false}},
		{"task 0", holder{"spiffe://lab/worker/0"}, []bool{true, false, true, false, true, true, false}},
		{"another job", holder{"spiffe://lab/a%20b/0"}, []bool{false, false, false, false, true, true, false}},
		{"operator", holder{"spiffe://lab/worker/operator"}, []bool{false, false, true, true, true, true, true}},
	} {
		got := []bool{
			b.hold(tt.peer, rightOwn, own), b.hold(tt.peer, rightOwn, none),
			b.hold(tt.peer, rightMember, own), b.hold(tt.peer, rightMember, other), b.hold(tt.peer, rightMember, none),
			b.hold(tt.peer, rightLook, none), b.hold(tt.peer, rightRule, none),
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: rights %v; want %v", tt.name, got, tt.want)
		}
		if b.hold(tt.peer, rightNone, own) {
			t.Errorf("%s: a call without a line in the policy is allowed", tt.name)
		}
	}
}

// Hard evidence against a task counts only from a certificate that names the task; without names all do.
func TestHardSuspect(t *testing.T) {
	clause.Cite(t, "SEC-31")
	b := newBinding("spiffe://lab/{task}", []coord.Job{{Name: "worker", Tasks: 2}})
	s := coord.Suspect{Call: coord.Call{Task: serry.TaskID{Job: "worker", Index: 0}}, Peer: serry.Life{Task: serry.TaskID{Job: "worker", Index: 1}}, Hard: true}
	for _, tt := range []struct {
		name          string
		binding       binding
		peer          holder
		allowed, hard bool
	}{
		{"its own certificate", b, holder{"spiffe://lab/0"}, true, false},
		{"a relay of both", b, holder{"spiffe://lab/0", "spiffe://lab/1"}, true, true},
		{"names nothing", b, nil, false, true},
		{"no names are bound", binding{}, nil, true, true},
	} {
		ev, allowed := tt.binding.judge(tt.peer, s)
		if got := ev.(coord.Suspect).Hard; allowed != tt.allowed || got != tt.hard {
			t.Errorf("%s: allowed %v, hard %v; want %v, %v", tt.name, allowed, got, tt.allowed, tt.hard)
		}
	}
}
