package server

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// metrics is what a Prometheus server reads. It holds nothing: all is asked for when it is read.
type metrics struct {
	server *Server
	shape  metricShape
}

// metricShape names the metrics.
type metricShape struct {
	tasks, age, oldest                          *prometheus.Desc
	calls, received, sent, waits, lost          *prometheus.Desc
	epoch, barriers, waiting, watchers, polling *prometheus.Desc
	connections, hosts, queued, events, batches *prometheus.Desc
	keys, stored, term, writes                  *prometheus.Desc
}

// newMetrics makes a page of its own registry: the server's numbers, those of its transport, and those
// of its process.
func newMetrics(s *Server) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		&metrics{server: s, shape: newMetricShape()},
		s.transport,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r})
}

func newMetricShape() metricShape {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("serry_"+name, help, labels, nil)
	}
	return metricShape{
		tasks:       d("tasks", "Tasks of the job by state.", "state"),
		age:         d("heartbeat_age_seconds", "Connected tasks by the age of their last heartbeat."),
		oldest:      d("heartbeat_age_max_seconds", "Age of the oldest last heartbeat of a connected task."),
		calls:       d("calls_total", "Calls answered.", "dialect", "method", "code"),
		received:    d("received_bytes_total", "Bytes of requests, expanded.", "dialect", "method"),
		sent:        d("sent_bytes_total", "Bytes of replies.", "dialect", "method"),
		waits:       d("barrier_wait_seconds", "How long calls waited at barriers."),
		lost:        d("lost_tasks_total", "Tasks declared dead, by what was seen.", "evidence"),
		epoch:       d("epoch", "Number of the present epoch."),
		barriers:    d("barriers_open", "Barriers that wait for somebody."),
		waiting:     d("calls_waiting", "Calls that wait for their answer."),
		watchers:    d("watchers", "Calls that wait for a change of the tasks."),
		polling:     d("error_polls", "Calls that wait for an error."),
		connections: d("connections", "Open connections, those within streams included."),
		hosts:       d("hosts", "Relays and clients with a stream, connected or about to resume it."),
		queued:      d("queued_events", "Events that wait for the owner of the machine."),
		events:      d("events_total", "Calls that went through the machine."),
		batches:     d("batches_total", "Batches in which they went."),
		keys:        d("keys", "Keys stored."),
		stored:      d("store_bytes", "Bytes of all keys and values."),
		term:        d("term", "Number of the leadership."),
		writes:      d("journal_writes_total", "Writes to the journal, each for all calls that had gathered."),
	}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	v := m.server.View()
	m.state(ch, v)
	m.beats(ch)
	m.traffic(ch)
}

func (m *metrics) state(ch chan<- prometheus.Metric, v coord.View) {
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	count := make(map[serry.TaskState]int64)
	for _, t := range v.Tasks {
		count[t.State]++
	}
	for _, s := range []serry.TaskState{serry.Disconnected, serry.Connected, serry.Failed} {
		gauge(m.shape.tasks, count[s], s.String())
	}
	gauge(m.shape.epoch, int64(v.Epoch))
	gauge(m.shape.barriers, int64(len(v.Barriers)))
	gauge(m.shape.waiting, int64(v.Waiters))
	gauge(m.shape.watchers, int64(v.Watchers))
	gauge(m.shape.polling, int64(v.Polls))
	gauge(m.shape.keys, int64(v.Keys))
	gauge(m.shape.stored, v.StoreBytes)
	gauge(m.shape.connections, m.server.handler.open.Load())
	gauge(m.shape.hosts, int64(m.server.Hosts()))
	gauge(m.shape.queued, int64(m.server.handler.queue.length()))
}

// beats measures how old the last heartbeats are now.
func (m *metrics) beats(ch chan<- prometheus.Metric) {
	now, oldest := m.server.handler.clock.now(), 0.0
	ages := newHistogram(waitBounds())
	e := m.server.handler.epoch.Load()
	for i := range e.tasks {
		if e.tasks[i].shown.Load().State != serry.Connected {
			continue
		}
		age := max(0, time.Duration(now-coord.Time(e.tasks[i].seen.Load())).Seconds())
		oldest = max(oldest, age)
		ages.observe(age)
	}
	n, sum, below := ages.read()
	ch <- prometheus.MustNewConstHistogram(m.shape.age, n, sum, below)
	ch <- prometheus.MustNewConstMetric(m.shape.oldest, prometheus.GaugeValue, oldest)
}

func (m *metrics) traffic(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	st := m.server.stats
	for d := range st.calls {
		for op := range st.calls[d] {
			calls := &st.calls[d][op]
			dialect, method := wire.Dialect(d).String(), wire.Op(op).String()
			answered := uint64(0)
			for code := range calls.codes {
				if n := calls.codes[code].Load(); n > 0 {
					counter(m.shape.calls, n, dialect, method, codes.Code(code).String())
					answered += n
				}
			}
			if in := calls.bytesIn.Load(); in+answered > 0 {
				counter(m.shape.received, in, dialect, method)
				counter(m.shape.sent, calls.bytesOut.Load(), dialect, method)
			}
		}
	}
	n, sum, below := st.waits.read()
	ch <- prometheus.MustNewConstHistogram(m.shape.waits, n, sum, below)
	for sort, name := range [...]string{bySilence: "silence", byConnection: "connection", byProcess: "process", byOther: "other"} {
		counter(m.shape.lost, st.lostBy[sort].Load(), name)
	}
	if j := m.server.owner.journal; j != nil {
		ch <- prometheus.MustNewConstMetric(m.shape.term, prometheus.GaugeValue, float64(m.server.cfg.Term))
		counter(m.shape.writes, j.writes.Load())
	}
	counter(m.shape.events, st.events.Load())
	counter(m.shape.batches, st.batches.Load())
}
