package server

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// metrics is what a Prometheus server reads. It holds no numbers: it asks the server for all of them when the
// page is read, so that counting costs the server nothing but what it counts anyway. People have
// alerts on the names and labels, so those do not change; docs/OPERATING.md says which matter most.
//
// A page is gathered on the goroutine of a request, while the server works. It reads atomic numbers, constants
// and the length of the queue itself, and asks the owner for all else (View, books).
type metrics struct{ *Server }

// newMetrics gathers the server's numbers, those of its transport, and the limits that they are compared with.
func newMetrics(s *Server) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics{s}, s.transport, Rules{s.cfg})
	return r
}

// Rules shows the limits and time-outs of a configuration, so that alerts can compare numbers with them. Every
// server of a service shows them, whether it leads or not (DLV-40).
type Rules struct{ Config }

// Describe implements [prometheus.Collector].
func (r Rules) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect implements [prometheus.Collector].
func (r Rules) Collect(ch chan<- prometheus.Metric) {
	p := page{"serry_", ch}
	silence := cmp.Or(r.Cluster.HeartbeatTimeout, DefaultHeartbeatTimeout)
	p.gauge("heartbeat_timeout_seconds", "How long a task may be silent.", silence.Seconds())
	job, known, own := r.Cluster.Limits, coord.DefaultLimits(), r.Limits.withDefaults()
	for _, l := range []struct {
		name string
		n    int64
	}{
		{"keys", int64(cmp.Or(job.Keys, known.Keys))}, {"store-bytes", cmp.Or(job.StoreBytes, known.StoreBytes)},
		{"barriers", int64(cmp.Or(job.Barriers, known.Barriers))}, {"waiters", int64(cmp.Or(job.Waiters, known.Waiters))},
		{"connections", int64(own.Connections)}, {"queue-events", int64(own.QueueEvents)}, {"queue-bytes", own.QueueBytes},
		{"stranger-bytes", own.StrangerBytes},
	} {
		p.gauge("limit", "The greatest number that is allowed, by its name in --limit.", float64(l.n), "name", l.name)
	}
}

// A page takes the metrics of one reading. Their names begin with a prefix. Each is described where it is shown, so
// that a new one is one line.
type page struct {
	prefix string
	ch     chan<- prometheus.Metric
}

// desc describes a metric. labels are names and values in turn.
func (p page) desc(name, help string, labels []string) *prometheus.Desc {
	all := make(prometheus.Labels, len(labels)/2)
	for i := 0; i < len(labels); i += 2 {
		all[labels[i]] = labels[i+1]
	}
	return prometheus.NewDesc(p.prefix+name, help, nil, all)
}

// gauge shows a number that rises and falls.
func (p page) gauge(name, help string, v float64, labels ...string) {
	p.ch <- prometheus.MustNewConstMetric(p.desc(name, help, labels), prometheus.GaugeValue, v)
}

// counter shows a number that only rises.
func (p page) counter(name, help string, n uint64, labels ...string) {
	p.ch <- prometheus.MustNewConstMetric(p.desc(name, help, labels), prometheus.CounterValue, float64(n))
}

// seconds shows a time that only grows.
func (p page) seconds(name, help string, d time.Duration, labels ...string) {
	p.ch <- prometheus.MustNewConstMetric(p.desc(name, help, labels), prometheus.CounterValue, d.Seconds())
}

// histogram shows how many values are at or below each bound.
func (p page) histogram(name, help string, h *histogram) {
	n, sum, below := h.read()
	p.ch <- prometheus.MustNewConstHistogram(p.desc(name, help, nil), n, sum, below)
}

// Describe implements [prometheus.Collector].
func (m metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements [prometheus.Collector].
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	p := page{"serry_", ch}
	// A server that runs leads: of several nodes, only the leader has one. The other nodes show the same three
	// metrics with other values.
	p.gauge("leader", "1 where this server leads.", 1)
	p.gauge("term", "Number of the leadership; 0 for a server without a journal.", float64(m.cfg.Term))
	p.gauge("relay_down", "1 while the service is out of reach.", 0)
	m.state(p, m.View())
	m.beats(p)
	m.calls(p)
	m.work(p)
	m.time(p)
}

// time shows how the time of the job was used, and which tasks hold the others up. Only tasks that do have a row, and classes
// of barriers are bounded, so a job of ten thousand tasks has no more rows than one of ten (D-GP-9).
func (m metrics) time(p page) {
	b := m.books()
	// A counter must never fall. The time of the step under way may still turn out to be lost, so it is not
	// counted before it is settled.
	if g := b.settled; g.Known() {
		p.seconds("productive_seconds_total", "Time that went into steps.", g.Productive)
		for _, cause := range g.Causes() {
			p.seconds("lost_seconds_total", "Time that went into nothing, by cause.", g.Lost[cause], "cause", string(cause))
		}
	}
	p.gauge("hang_stage", "How far a wait for ranks that keep the others waiting has come: 0 none, 1 late, 2 stalled, 3 stuck.", float64(b.stage))
	for v, n := range b.verdicts {
		p.counter("verdicts_total", "First failures, and waits that have stalled, by kind and grade.", n, "kind", v.kind, "grade", v.grade)
	}
	for _, s := range b.stragglers[:min(len(b.stragglers), maxStragglerRows)] {
		name, who := "rank", strconv.Itoa(s.Rank)
		if s.Rank < 0 {
			name, who = "host", s.Host
		}
		p.gauge("straggler", "Tasks and hosts that hold the others up: the share of the time that each costs.", s.Share(), name, who)
	}
	for label, h := range b.lags {
		p.ch <- prometheus.MustNewConstHistogram(p.desc("barrier_last_arrival_lag_seconds",
			"How long after the median task the last one came to a barrier, by class.", []string{"class", label}), h.count, h.sum, h.below)
	}
}

const (
	maxStragglerRows = 64
	maxLabel         = 200 // bytes of a label that a client chose
)

// valid makes a text that a client chose one that a label may have. The library panics at a label that is not
// UTF-8.
func valid(s string) string { return strings.ToValidUTF8(short(s, maxLabel), "?") }

// state shows what the machine holds. The view comes from the owner, so the page waits while the journal stands
// still; queued_events is read without it.
func (m metrics) state(p page, v coord.View) {
	count := make(map[serry.TaskState]int)
	for _, t := range v.Tasks {
		count[t.State]++
	}
	for _, s := range []serry.TaskState{serry.Disconnected, serry.Connected, serry.Failed} {
		p.gauge("tasks", "Tasks of the job by state.", float64(count[s]), "state", s.String())
	}
	p.gauge("epoch", "Number of the present epoch.", float64(v.Epoch))
	p.gauge("barriers_open", "Barriers that wait for tasks.", float64(len(v.Barriers)))
	p.gauge("calls_waiting", "Calls that wait for their answer.", float64(v.Waiters))
	p.gauge("watchers", "Calls that wait for a change of the tasks.", float64(v.Watchers))
	p.gauge("error_polls", "Calls that wait for an error.", float64(v.Polls))
	p.gauge("keys", "Keys stored.", float64(v.Keys))
	p.gauge("store_bytes", "Bytes of all keys and values.", float64(v.StoreBytes))
}

// beats shows how old the last heartbeats are now. The oldest is the first sign of a host in trouble. The ages are
// counted anew on each reading: a heartbeat costs the server one atomic store, and no counter (see detect). Tasks
// behind a relay show the age of what the relay said of them last.
func (m metrics) beats(p page) {
	now, oldest := m.handler.clock.now(), 0.0
	ages := newHistogram(waitBounds())
	e := m.handler.epoch.Load()
	for i := range e.tasks {
		if e.tasks[i].shown.Load().State != serry.Connected {
			continue
		}
		age := max(0, time.Duration(now-coord.Time(e.tasks[i].seen.Load())).Seconds())
		oldest = max(oldest, age)
		ages.observe(age)
	}
	p.histogram("heartbeat_age_seconds", "Connected tasks by the age of their last heartbeat.", &ages)
	p.gauge("heartbeat_age_max_seconds", "Age of the oldest last heartbeat of a connected task.", oldest)
}

// calls shows the traffic by operation. Operations that no client has used have no row. A call counts when it is
// answered, so calls_total lags behind by calls_waiting. Codes are those of gRPC, in both dialects.
func (m metrics) calls(p page) {
	for d := range m.stats.calls {
		for op := range m.stats.calls[d] {
			st := &m.stats.calls[d][op]
			dialect, method := wire.Dialect(d).String(), wire.Op(op).String()
			answered := uint64(0)
			for code := range st.codes {
				if n := st.codes[code].Load(); n > 0 {
					p.counter("calls_total", "Calls answered.", n, "dialect", dialect, "method", method, "code", codes.Code(code).String())
					answered += n
				}
			}
			if in := st.bytesIn.Load(); in+answered > 0 {
				p.counter("received_bytes_total", "Bytes of requests, expanded.", in, "dialect", dialect, "method", method)
				p.counter("sent_bytes_total", "Bytes of replies.", st.bytesOut.Load(), "dialect", dialect, "method", method)
			}
		}
	}
}

// work shows what the server has done, and what it has to do. events_total divided by batches_total is how many calls
// share a write of the journal; queued_events that grow mean that the journal, or the machine, is too slow for the
// clients. Lost tasks are counted by what was seen first, since silence after a closed connection is no second loss.
func (m metrics) work(p page) {
	p.histogram("barrier_wait_seconds", "How long calls waited at barriers.", &m.stats.waits)
	for sort, name := range [...]string{bySilence: "silence", byConnection: "connection", byProcess: "process", byOther: "other"} {
		p.counter("lost_tasks_total", "Tasks declared dead, by what was seen.", m.stats.lostBy[sort].Load(), "evidence", name)
	}
	p.gauge("connections", "Open connections, those within streams included.", float64(m.handler.open.Load()))
	p.gauge("hosts", "Relays and clients with a stream, connected or about to resume it.", float64(m.Hosts()))
	p.gauge("queued_events", "Events that wait for the owner of the machine.", float64(m.handler.queue.length()))
	p.counter("events_total", "Calls that went through the machine.", m.stats.events.Load())
	p.counter("batches_total", "Batches in which they went.", m.stats.batches.Load())
	if j := m.owner.journal; j != nil {
		p.counter("journal_writes_total", "Writes to the journal, each for all calls that had gathered.", j.writes.Load())
	}
}
