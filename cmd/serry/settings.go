package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/mtls"
)

// settings are the flags of serry serve. The defaults are those of jax.
type settings struct {
	listen, metricsListen string
	page                  pageSettings
	sockets               sockets
	logFormat, logLevel   string

	tasks           int
	jobs            string
	recoverableJobs []string

	registerTimeout, shutdownTimeout time.Duration
	heartbeatTimeout, heartbeatSlack time.Duration
	lostGrace                        time.Duration
	recoverable, excludeUnsynced     bool
	errorDelivery                    string
	limits                           map[string]int64
	tls                              mtls.Files
	taskURI                          string
	storeSettings

	identity *mtls.Identity // from the files, or nil; set by config
}

func (s *settings) define(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&s.listen, "listen", "[::]:8476", "`address` to serve on: host:port, or unix:/path")
	s.sockets.define(f)
	f.IntVar(&s.tasks, "tasks", 0, "`number` of ranks of the job")
	f.StringVar(&s.jobs, "jobs", "", "several jobs instead of one, as `name=count,...`")
	f.StringSliceVar(&s.recoverableJobs, "recoverable-jobs", nil, "`names` of jobs whose failures are not told to the others")
	f.DurationVar(&s.registerTimeout, "register-timeout", time.Hour, "how long the first rank waits for the last one")
	f.DurationVar(&s.heartbeatTimeout, "heartbeat-timeout", 100*time.Second, "how long a rank may be silent")
	f.DurationVar(&s.heartbeatSlack, "heartbeat-slack", 0, "added to the heartbeat timeout before silence counts (default the larger of 2s and 5%)")
	f.DurationVar(&s.shutdownTimeout, "shutdown-timeout", 5*time.Minute, "how long the first rank that leaves waits for the last; 0: each leaves by itself")
	f.DurationVar(&s.lostGrace, "lost-grace", server.DefaultLostGrace, "how long a rank whose connection closed may take to come back")
	f.BoolVar(&s.recoverable, "recoverable", false, "ranks may fail and come back while the others go on")
	f.BoolVar(&s.excludeUnsynced, "exclude-unsynced", false, "barriers do not wait for ranks that restarted elsewhere")
	f.StringVar(&s.errorDelivery, "error-delivery", "stream", "how ranks hear of a failure: `stream` or heartbeat")
	s.storeSettings.define(f)
	f.StringToInt64Var(&s.limits, "limit", nil, "set limits, as `name=number,...`: "+strings.Join(limitNames(), ", "))
	f.StringVar(&s.tls.Cert, "tls-cert", "", "PEM `file` with the certificate chain of the server; both sides then show a certificate")
	f.StringVar(&s.tls.Key, "tls-key", "", "PEM `file` with its private key")
	f.StringVar(&s.tls.CA, "tls-ca", "", "PEM `file` with the roots that clients must chain to")
	f.StringVar(&s.tls.PeerPrefix, "tls-peer-prefix", "", "what a URI name of a client's certificate must begin with, such as spiffe://example.org/job/")
	f.StringVar(&s.taskURI, "tls-task-uri", "", "`template` of the URI name that the certificate of a rank must have, such as spiffe://example.org/{job}/{task}")
	f.StringVar(&s.metricsListen, "metrics-listen", "", "`address` of /metrics for Prometheus, and of the health pages /livez and /readyz")
	s.page.define(f, "`address` of a page that shows the job to people with its token, such as localhost:8480; port 0 takes a free one")
	f.StringVar(&s.logFormat, "log-format", "text", "`text` or json")
	f.StringVar(&s.logLevel, "log-level", "info", "least important lines to log: debug, `info`, warn or error")
}

// fromEnvironment sets the flags that are not on the command line from variables: --lost-grace from
// SERRY_LOST_GRACE.
func fromEnvironment(cmd *cobra.Command) error {
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := "SERRY_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := os.Getenv(name)
		if value == "" || f.Changed || f.Name == "help" {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			errs = append(errs, environmentMistake(name, err))
		}
	})
	return seeHelp(cmd, errors.Join(errs...))
}

func environmentMistake(name string, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = valueMistake(wrong)
	}
	return fmt.Errorf("environment variable %s: %w", name, err)
}

// config turns the flags into the configuration of a server.
func (s *settings) config(cmd *cobra.Command) (server.Config, error) {
	var c server.Config
	jobs, err := s.parseJobs(cmd)
	if err != nil {
		return c, err
	}
	for flag, addr := range map[string]string{"listen": s.listen, "metrics-listen": s.metricsListen} {
		if flag == "metrics-listen" && addr == "" {
			continue
		}
		if err := checkListen(flag, addr); err != nil {
			return c, err
		}
	}
	if err := s.page.check(); err != nil {
		return c, err
	}
	if err := s.storeSettings.check(s.listen); err != nil {
		return c, err
	}
	if s.errorDelivery != "stream" && s.errorDelivery != "heartbeat" {
		return c, fmt.Errorf("--error-delivery %q: want stream or heartbeat", s.errorDelivery)
	}
	c = server.Config{
		Cluster: coord.Config{
			Jobs:             jobs,
			RegisterBarrier:  true,
			RegisterTimeout:  s.registerTimeout,
			HeartbeatTimeout: s.heartbeatTimeout,
			ShutdownTimeout:  s.shutdownTimeout,
			Recoverable:      s.recoverable,
			RecoverableJobs:  s.recoverableJobs,
			ExcludeUnsynced:  s.excludeUnsynced,
			ErrorsByBeat:     s.errorDelivery == "heartbeat",
			Republished:      topo.Republished,
		},
		HeartbeatSlack: orNone(cmd, "heartbeat-slack", s.heartbeatSlack),
		LostGrace:      orNone(cmd, "lost-grace", s.lostGrace),
	}
	if err := setLimits(&c, s.limits); err != nil {
		return c, err
	}
	if !s.tls.IsZero() {
		if s.identity, err = mtls.Load(s.tls); err != nil {
			return c, err
		}
		c.TLS = s.identity.Server()
	}
	if c.TaskURI = s.taskURI; c.TaskURI != "" && (s.peers != "" || strings.HasPrefix(s.store, "etcd:")) {
		return c, node.ErrTaskURI // before anything waits for the other servers
	}
	if s.heartbeatTimeout <= 0 {
		return c, fmt.Errorf("--heartbeat-timeout %v: want more than 0", s.heartbeatTimeout)
	}
	return c, c.Validate()
}

// orNone is how the server is told of a duration where the zero value means its default: a zero
// that the user wrote means none.
func orNone(cmd *cobra.Command, flag string, d time.Duration) time.Duration {
	if d == 0 && cmd.Flags().Changed(flag) {
		return -1
	}
	return d
}

func (s *settings) parseJobs(cmd *cobra.Command) ([]coord.Job, error) {
	hint := "--tasks 4 for a job of four tasks, or --jobs ps=2,worker=4 for several jobs"
	switch {
	case s.tasks != 0 && s.jobs != "":
		return nil, hinted{errors.New("--tasks and --jobs exclude each other"), hint}
	case s.jobs != "":
		return splitJobs(s.jobs)
	case !cmd.Flags().Changed("tasks"):
		return nil, hinted{errors.New("the number of ranks is not known"), hint}
	case s.tasks < 1 || s.tasks > coord.MaxTasks:
		return nil, fmt.Errorf("--tasks %d: want 1 to %d", s.tasks, coord.MaxTasks)
	}
	return []coord.Job{{Name: "worker", Tasks: s.tasks}}, nil
}

func splitJobs(list string) ([]coord.Job, error) {
	var jobs []coord.Job
	for part := range strings.SplitSeq(list, ",") {
		name, count, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(count)
		if name == "" || err != nil {
			return nil, fmt.Errorf("--jobs %q: want name=count,..., such as ps=2,worker=4", list)
		}
		jobs = append(jobs, coord.Job{Name: name, Tasks: n})
	}
	if err := coord.ValidateJobs(jobs); err != nil {
		return nil, fmt.Errorf("--jobs %q: %w", list, err)
	}
	return jobs, nil
}

// logger writes to stderr what the server has to say.
func (s *settings) logger(cmd *cobra.Command) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", s.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", s.logFormat)
}
