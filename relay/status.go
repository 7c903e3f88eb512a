package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/serry-dev/serry"
)

// A Status is a picture of a relay.
type Status struct {
	Clients int // open connections
	Lives   int // of tasks that are registered on them
	Held    int // calls without an answer
	Watches int // upstream, each for all clients that ask the same

	Down    bool      // the service is out of reach
	Since   time.Time // when it was lost, or found
	GivenUp bool      // it has been out of reach for so long that clients were told
	Why     error     // with Down: what the last attempt met, or nil

	Address string            // of the leader last seen
	Term    uint64            // of the leader last seen; 0: none yet
	Service serry.Incarnation // its epoch
	Outages int               // that are over
	Longest time.Duration     // of those
	Last    time.Duration     // the newest of those
}

// Status draws a picture of the relay.
func (r *Relay) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.mu.outage
	s := Status{
		Clients: len(r.mu.clients), Held: r.mu.held, Watches: len(r.mu.watches.of),
		Down: o.down, Since: o.since, GivenUp: o.gaveUp, Why: o.why,
		Address: o.address, Term: o.term, Service: o.service, Outages: o.ended, Longest: o.longest, Last: o.last,
	}
	for _, l := range r.mu.lives.of {
		if l.open > 0 {
			s.Lives++
		}
	}
	return s
}

// Ready says whether a call that came now would be answered: nil, or why not.
func (r *Relay) Ready() error {
	s := r.Status()
	switch {
	case !s.Down:
		return nil
	case s.Why == nil:
		return errors.New("the service is not reached yet")
	default:
		return fmt.Errorf("the service is out of reach: %w", s.Why)
	}
}

// Metrics gathers the numbers of the relay, for Prometheus.
func (r *Relay) Metrics() prometheus.Gatherer {
	g := prometheus.NewRegistry()
	g.MustRegister(metrics{r})
	return g
}

// metrics is what a Prometheus server reads. It holds nothing: all is asked for when it is read.
type metrics struct{ relay *Relay }

// Describe implements [prometheus.Collector].
func (m metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements [prometheus.Collector]. Each metric is described where it is shown, so that a new one is one line.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	show := func(kind prometheus.ValueType, name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("serry_relay_"+name, help, nil, nil), kind, v)
	}
	s := m.relay.Status()
	down, outage := 0.0, 0.0
	if s.Down {
		down, outage = 1, time.Since(s.Since).Seconds()
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	show(gauge, "clients", "Open connections of clients.", float64(s.Clients))
	show(gauge, "lives", "Tasks registered on them.", float64(s.Lives))
	show(gauge, "calls_waiting", "Calls that wait for their answer.", float64(s.Held))
	show(gauge, "watches", "Watches upstream, each for all clients that ask the same.", float64(s.Watches))
	show(gauge, "down", "1 while the service is out of reach.", down)
	show(gauge, "outage_seconds", "How long it has been out of reach; 0 while it is not.", outage)
	show(gauge, "term", "Term of the leader last seen.", float64(s.Term))
	show(counter, "outages_total", "Outages that are over.", float64(s.Outages))
	show(gauge, "outage_max_seconds", "The longest of them.", s.Longest.Seconds())
	show(gauge, "give_up_seconds", "How long the service may be out of reach before tasks are told; 0: for ever.",
		max(0, m.relay.cfg.GiveUp).Seconds())
}
