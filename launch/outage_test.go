package launch

import (
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/relay"
)

// What people are told of outages of a service that others run.
func TestOutageNews(t *testing.T) {
	clause.Cite(t, "D-SC-14")
	noon := time.Date(2026, 11, 16, 12, 0, 0, 0, time.Local)
	at := func(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }
	up := func(address string, term uint64, since, last float64) relay.Status {
		return relay.Status{Address: address, Term: term, Since: at(since), Last: time.Duration(last * float64(time.Second))}
	}
	down := func(since float64) relay.Status {
		return relay.Status{Down: true, Address: "c1", Term: 1, Since: at(since)}
	}
	const lost = "coordinator lost since 12:00:10; ranks are kept waiting until 12:05:10"
	for name, steps := range map[string][]struct {
		at   float64
		st   relay.Status
		want string
	}{
		"not reached yet":   {{0, relay.Status{Down: true, Since: at(0)}, ""}, {60, relay.Status{Down: true, Since: at(0)}, ""}, {61, up("c1", 1, 60.5, 0), ""}},
		"a fail-over":       {{0, up("c1", 1, 0, 0), ""}, {10.5, down(10), ""}, {11, up("c2", 2, 10.4, 0.4), "coordinator failed over from c1 to c2 at 12:00:10 (0.4s); no rank was lost"}, {12, up("c2", 2, 10.4, 0.4), ""}},
		"between two looks": {{0, up("c1", 1, 0, 0), ""}, {11, up("c2", 3, 10.4, 0.4), "coordinator failed over from c1 to c2 at 12:00:10 (0.4s); no rank was lost"}},
		"no successor":      {{0, up("c1", 1, 0, 0), ""}, {11, down(10), ""}, {12, down(10), lost}, {13, down(10), ""}, {40, up("c1", 2, 39, 29), "coordinator is back at 12:00:39 after 29s"}, {41, up("c1", 2, 39, 29), ""}},
		"lost at once":      {{11, down(10), ""}, {12, down(10), lost}, {40, up("c1", 2, 39, 29), "coordinator is back at 12:00:39 after 29s"}}, // before the first look
		"followed at once":  {{11, down(10), ""}, {11.5, up("c2", 2, 11.2, 1.2), "coordinator failed over from c1 to c2 at 12:00:11 (1.2s); no rank was lost"}},
		"without a journal": {{0, up("c1", 0, 0, 0), ""}, {11, down(10), ""}, {12, down(10), lost}}, // such a server has term 0
		"a late successor":  {{0, up("c1", 1, 0, 0), ""}, {15, down(10), lost}, {40, up("c2", 2, 39, 29), "coordinator failed over from c1 to c2 at 12:00:39 (29s); no rank was lost"}},
		"a short break":     {{0, up("c1", 1, 0, 0), ""}, {10, down(9.5), ""}, {11, up("c1", 1, 10.5, 1), ""}},
	} {
		var o outageNews
		for _, s := range steps {
			if got := o.step(s.st, 5*time.Minute, at(s.at), 0); got != s.want {
				t.Errorf("%s: after %v s: %q; want %q", name, s.at, got, s.want)
			}
		}
	}
	o := outageNews{last: up("c1", 1, 0, 0), seen: true}
	if got := o.step(down(10), -1, at(20), 0); got != "coordinator lost since 12:00:10; ranks are kept waiting" {
		t.Errorf("a relay that never gives up: %q", got)
	}
	if got := o.step(up("c2", 2, 21, 11), -1, at(22), 2); got != "coordinator failed over from c1 to c2 at 12:00:21 (11s); 2 ranks were lost" {
		t.Errorf("with losses: %q", got)
	}
}
