package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// Version is that of the documents in JSON. It changes when a field changes its meaning or goes.
const Version = 1

// A Source is the service of a job, as commands ask it. Its methods may be called at the same time.
type Source interface {
	// Look returns what is known of the job now: its status with all tasks, where each was last heard and its last call,
	// the receipts of saves, and what the launcher says. It has no stacks.
	Look(ctx context.Context) (diagnose.Evidence, error)

	// Stacks asks where in their code tasks are; nil: all. It may take some seconds.
	Stacks(ctx context.Context, tasks []string) (Stacks, error)
}

// Stacks are where the tasks of a job are, as serry stacks -o json has them.
type Stacks struct {
	Version   int                   `json:"version"`
	Groups    []diagnose.StackGroup `json:"groups"`    // by their main threads, the smallest first
	Elsewhere []string              `json:"elsewhere"` // tasks of which nothing is known
}

// Config has the source of what a page shows, and the rules of access to it.
type Config struct {
	Source Source
	Token  string       // to see the page; [MinToken] characters at least
	Hosts  []string     // names and addresses, beside those of loopback, that browsers may reach the page by
	TLS    *tls.Config  // of [Server.Serve]; nil: plain HTTP
	Log    *slog.Logger // nil: silent

	Panels     Panels
	WriteToken string   // to change the job, with Panels.Acts
	Hide       []string // values, logs, and patterns of keys whose values are not shown
}

// Panels are what a page has beside what its source says. What is nil is not there.
type Panels struct {
	Keys      Keys
	Processes Processes
	Acts      Acts
}

// MinToken is how many characters a token has at least.
const MinToken = 16

// A Server serves the page of a job. It is an [http.Handler], so that tests and programs with an HTTP server of their own can use it.
type Server struct {
	access access // set in New, then constant, as what follows
	hub    *hub
	stacks *stackReader
	panels Panels
	hide   hiding
	past   *replayer // or nil: the job is looked at as it is now
	log    *slog.Logger

	sizes       *keep[[]coord.KeySize]
	lines       *keep[*wire.LogTail]
	barrierLogs *keep[wire.BarrierLog]
	documents   *keep[any]

	mux  *http.ServeMux
	http *http.Server
	end  context.CancelFunc // of all streams
}

//go:embed files
var embedded embed.FS

const (
	headTimeout = 10 * time.Second // for the head of a request
	idleTimeout = 2 * time.Minute  // of a connection without a request
	headBytes   = 16 << 10
	bodyBytes   = 4 << 10 // of a request

	// maxConns bounds the connections, also of those who have no token: this process needs files for the job as well.
	maxConns = 2 * maxViewers

	bodyPatience   = 10 * time.Second // for the body of a request
	answerPatience = 2 * time.Minute  // for an answer, from the head of its request on; streams have their own
)

// New makes a server. [Server.Close] ends it.
func New(cfg Config) (*Server, error) {
	if cfg.Source == nil {
		return nil, errors.New("web: a page without a source")
	}
	if len(cfg.Token) < MinToken {
		return nil, fmt.Errorf("web: a token of %d characters; want %d or more", len(cfg.Token), MinToken)
	}
	if cfg.Panels.Acts != nil && (len(cfg.WriteToken) < MinToken || cfg.WriteToken == cfg.Token) {
		return nil, fmt.Errorf("web: a token for changes of %d characters; want another one than that for viewers, of %d or more", len(cfg.WriteToken), MinToken)
	}
	hide, err := newHiding(cfg.Hide)
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	files, err := fs.Sub(embedded, "files")
	if err != nil {
		return nil, err
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		access: newAccess(cfg.Token, cfg.Hosts),
		hub:    newHub(cfg.Source),
		stacks: &stackReader{source: cfg.Source},
		panels: cfg.Panels, hide: hide, log: log,
		sizes: newKeep[[]coord.KeySize](keysPause, keysPatience), lines: newKeep[*wire.LogTail](logsPause, logsPatience),
		barrierLogs: newKeep[wire.BarrierLog](recordsPause, recordsPatience), documents: newKeep[any](recordsPause, recordsPatience),
		mux: http.NewServeMux(),
		end: cancel,
	}
	if cfg.Panels.Acts != nil {
		writer := newAccess(cfg.WriteToken, nil)
		s.access.writer = &writer
	}
	if past, ok := cfg.Source.(Past); ok {
		s.past = newReplayer(past)
	}
	s.route(files)
	s.http = &http.Server{
		Handler: s, TLSConfig: cfg.TLS, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headBytes,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong is no warning
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	return s, nil
}

// route says which request goes where.
func (s *Server) route(files fs.FS) {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	s.mux.HandleFunc("GET /{$}", s.front(files))
	s.mux.Handle("GET /{file}", assets(files))
	s.mux.HandleFunc("POST /api/v1/session", s.session)
	s.mux.HandleFunc("POST /plain", s.plainSession)
	all := map[string]http.HandlerFunc{
		"GET /plain":                s.plain,
		"GET /api/v1/job":           s.job,
		"GET /api/v1/grid":          s.grid,
		"GET /api/v1/ranks":         s.ranks,
		"GET /api/v1/ranks/{id...}": s.rank,
		"GET /api/v1/waits":         s.waits,
		"GET /api/v1/events":        s.events,
		"GET /api/v1/why":           s.why,
		"GET /api/v1/servers":       s.servers,
		"GET /api/v1/stacks":        s.lastStacks,
		"POST /api/v1/stacks":       s.readStacks,
		"GET /api/v1/stream":        s.stream,
		"GET /api/v1/preempt":       s.preemptions,
		"GET /api/v1/attempts":      s.attempts,
		"GET /api/v1/rights":        s.rights,
		"GET /api/v1/goodput":       s.goodput,
		"GET /api/v1/stragglers":    s.stragglers,
		"GET /api/v1/coordinator":   s.coordinator,
	}
	s.routePanels(all)
	for path, serve := range all {
		s.mux.Handle(path, s.access.ask(serve))
	}
	if s.past != nil {
		s.mux.Handle("GET /api/v1/moment", s.access.ask(s.moment))
	}
	s.mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path+" here", "docs/PAGE.md lists what there is")
	})
}

// routePanels adds the requests of the panels that this page has.
func (s *Server) routePanels(all map[string]http.HandlerFunc) {
	if s.panels.Keys != nil {
		all["GET /api/v1/keys"], all["GET /api/v1/keys/value"] = s.keys, s.value
	}
	if s.panels.Processes != nil {
		all["GET /api/v1/logs/{id...}"] = s.logs
		all["GET /api/v1/barriers"], all["GET /api/v1/barriers/{number}"] = s.barriers, s.barrier
		all["GET /api/v1/collectives"], all["GET /api/v1/transfers"] = s.collectives, s.transfers
	}
	if s.panels.Acts != nil {
		all["POST "+actPath+"{act}"] = s.act
	}
}

// actPath is where acts are.
const actPath = "/api/v1/acts/"

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit := int64(bodyBytes)
	if s.panels.Acts != nil && strings.HasPrefix(r.URL.Path, actPath) {
		limit = actBytes
	}
	take(w, r, limit)
	if !s.access.admit(w, r) {
		return
	}
	if s.past != nil {
		var err error
		if r, err = s.past.aim(r); err != nil {
			refuse(w, http.StatusBadRequest, err.Error(), "")
			return
		}
	}
	s.mux.ServeHTTP(w, r)
}

// take reads the body of a request in the time that its sender has, and says how long the answer may take to leave. Without that a sender
// with no token could hold connections of the process, which serves the job as well, for as long as it likes. The time of the body ends
// here: later it would end a handler that still works. A handler finds what was wrong with a body where it reads that.
func take(w http.ResponseWriter, r *http.Request, limit int64) {
	control := http.NewResponseController(w) // a writer that knows no deadlines is that of a test or of another server, which has its own
	_ = control.SetWriteDeadline(time.Now().Add(answerPatience))
	if r.ContentLength == 0 {
		return
	}
	_ = control.SetReadDeadline(time.Now().Add(bodyPatience))
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		_ = control.SetReadDeadline(time.Time{})
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), ending{err}))
}

// An ending is the end of a body, with what was wrong with it, or nil.
type ending struct{ err error }

// Read implements [io.Reader].
func (e ending) Read([]byte) (int, error) { return 0, cmp.Or(e.err, io.EOF) }

// Serve serves the page on l until [Server.Close], over 2,048 connections at most: others wait.
func (s *Server) Serve(l net.Listener) error {
	l = netutil.LimitListener(l, maxConns)
	var err error
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(l, "", "") // the configuration has the certificate
	} else {
		err = s.http.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// endPatience is how long answers that are under way have at the end: that to a person who has stopped the job, for one.
const endPatience = time.Second

// Close ends all streams and waits for the goroutine that asks.
func (s *Server) Close() {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	_ = s.http.Shutdown(ctx)
	_ = s.http.Close() // nothing waits for what is cut off
	s.hub.close()
}
