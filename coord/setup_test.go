package coord_test

import (
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// begin makes a new machine.
func (s *script) begin(c command) {
	s.replay(s.t)
	s.cfg = s.config(c)
	jobs := s.cfg.Jobs
	s.m, s.codec = coord.New(s.cfg), wire.NewCodec(jobs)
	s.service, s.next, s.req, s.now, s.version, s.revision = 100, 100, 0, 0, -1, -1
	s.journals = []*keeper{{begin: c.line, snapshot: s.m.Snapshot(nil)}}
	s.written = append(s.written, s.journals[0])
	s.clients, s.open, s.history = make(map[serry.TaskID]client), make(map[coord.Req]pending), nil
	s.table = make(map[serry.TaskID]coord.Changed)
	s.names, s.notes, s.dialectNow = c.has("names"), c.has("notes"), s.dialect
	if c.has("dialect") {
		s.dialectNow = map[string]wire.Dialect{"N": wire.XLA, "O": wire.TF}[c.option("dialect")]
	}
	if c.has("connected") { // all tasks have registered before the story begins
		for _, j := range jobs {
			for i := range j.Tasks {
				id := serry.TaskID{Job: j.Name, Index: i}
				s.clients[id] = client{inc: s.born(id), service: s.service}
				s.step(coord.RegisterTask{Call: coord.Call{Task: id, Incarnation: s.born(id)}})
			}
		}
	}
}

// config reads the settings of a machine.
func (s *script) config(c command) coord.Config {
	jobs := s.jobs(c)
	if jobs == nil {
		jobs = []coord.Job{{Name: "worker", Tasks: 1}}
	}
	cfg := coord.Config{
		Jobs:             jobs,
		Service:          100,
		RegisterBarrier:  c.has("register-barrier"),
		RegisterTimeout:  option(s.t, c, "register-timeout", time.Hour),
		HeartbeatTimeout: option(s.t, c, "heartbeat", 2*time.Second),
		ShutdownTimeout:  option(s.t, c, "shutdown-timeout", time.Duration(0)),
		Recoverable:      c.has("recoverable"),
		AllowReconnect:   c.has("reconnect"),
		ExcludeUnsynced:  c.has("exclude-unsynced"),
		ErrorsByBeat:     c.has("errors-by-beat"),
		Limits: coord.Limits{
			Keys:           option(s.t, c, "keys", 0),
			KeyBytes:       option(s.t, c, "key-bytes", 0),
			ValueBytes:     option(s.t, c, "value-bytes", int64(0)),
			StoreBytes:     option(s.t, c, "store-bytes", int64(0)),
			Barriers:       option(s.t, c, "barriers", 0),
			TaskWaiters:    option(s.t, c, "task-waiters", 0),
			Waiters:        option(s.t, c, "waiters", 0),
			Requesters:     option(s.t, c, "requesters", 0),
			RequestResults: option(s.t, c, "request-results", 0),
			AliveGroups:    option(s.t, c, "alive-groups", 0),
		},
	}
	if c.has("recoverable-jobs") {
		cfg.RecoverableJobs = strings.Split(c.option("recoverable-jobs"), ",")
	}
	if c.has("republish") {
		cfg.Republished = sameWords(c.option("republish"))
	}
	return cfg
}

// sameWords is a rule of C-KV-15 for scripts: below a directory, values mean the same if they have
// the same words in any order.
func sameWords(dir string) func(key string, stored, offered []byte) bool {
	words := func(b []byte) []string { return slices.Sorted(strings.FieldsSeq(string(b))) }
	return func(key string, stored, offered []byte) bool {
		return strings.HasPrefix(key, dir+"/") && slices.Equal(words(stored), words(offered))
	}
}

// born is the incarnation of a task's first life, unless a command says inc=.
func (s *script) born(id serry.TaskID) serry.Incarnation {
	inc := serry.Incarnation(10 + id.Index)
	for _, j := range s.cfg.Jobs {
		if j.Name == id.Job {
			return inc
		}
		inc += serry.Incarnation(j.Tasks)
	}
	return inc
}
