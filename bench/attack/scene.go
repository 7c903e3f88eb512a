package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire/mtls"
)

// A scene is a way to run the job, with what strangers do to it there.
type scene struct {
	name  string
	open  func(ctx context.Context, o options, steps time.Duration) (*stage, error)
	rows  []row
	proof proof
}

// A proof says by what a scene shows that its strangers came through: a table of zeros would say nothing.
type proof int

const (
	byReading  proof = iota // a person looks at the service all the time, and reads words of theirs
	byWriting               // values of theirs are stored
	byRefusals              // calls of theirs are refused
)

// scenes are all of them.
func scenes() ([]scene, error) {
	cut, err := cutHello()
	if err != nil {
		return nil, err
	}
	plain, err := plainRows(cut)
	if err != nil {
		return nil, err
	}
	return []scene{
		{"plain", openPlain, plain, byReading},
		{"meeting", openMeeting, meetingRows(cut), byWriting},
		{"certificates", openCertificates, certificateRows(cut), byRefusals},
	}, nil
}

// A stage is a job that steps, and the server that strangers attack meanwhile.
type stage struct {
	victim *victim
	job    *job
	pid    int        // of the server
	log    *proc.Tail // what it logs
	close  func()     // ends what is left
}

// openPlain runs a server without certificates, with which the processes of the job speak.
func openPlain(ctx context.Context, o options, steps time.Duration) (*stage, error) {
	server, addr, err := o.serve(ctx)
	if err != nil {
		return nil, err
	}
	j, err := o.startTasks(ctx, addr, steps)
	if err != nil {
		server.Kill()
		return nil, err
	}
	return &stage{victim: &victim{addr: addr}, job: j, pid: server.PID, log: &server.Log, close: server.Kill}, nil
}

// serve starts a server for the job, and says where it serves.
func (o options) serve(ctx context.Context, flags ...string) (*proc.Process, string, error) {
	return o.listening(ctx, append([]string{"serve", "--tasks", strconv.Itoa(processes)}, flags...)...)
}

// listening starts serry with a command that listens, and says where it does.
func (o options) listening(ctx context.Context, args ...string) (*proc.Process, string, error) {
	p, err := proc.Start(ctx, append(append([]string{o.binary}, args...), "--listen", "127.0.0.1:0")...)
	if err != nil {
		return nil, "", err
	}
	addr, err := p.Address()
	if err != nil {
		p.Kill()
	}
	return p, addr, err
}

// nodes is how many launchers share the job where they meet.
const nodes = 2

// openMeeting runs the job under two launchers, as if they were on two hosts. The strangers know where launchers meet.
// The first launcher has the meeting and the service of the job.
func openMeeting(ctx context.Context, o options, steps time.Duration) (*stage, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var all []*exec.Cmd
	for node := range nodes {
		args := append([]string{o.binary, "run", "-n", strconv.Itoa(processes / nodes), "--nnodes", strconv.Itoa(nodes),
			"--node-rank", strconv.Itoa(node), "--coordinator", addr, "--cluster", "none", "--"}, o.command...)
		all = append(all, o.process(steps, nil, args...))
	}
	j, err := startJob(ctx, all)
	if err != nil {
		return nil, err
	}
	return &stage{victim: &victim{addr: addr}, job: j, pid: j.all[0].Process.Pid, log: &j.log, close: j.kill}, nil
}

// freeAddress is one at which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// taskURI is the name of a task in certificates.
const taskURI = "spiffe://attack/{job}/{task}"

// openCertificates runs a server that binds certificates to tasks. The processes of the job reach it by a relay whose
// certificate names all of them. That of the strangers is from the same authority, and names no task.
func openCertificates(ctx context.Context, o options, steps time.Duration) (_ *stage, err error) {
	var uris []string
	for i := range processes {
		uris = append(uris, fmt.Sprint("spiffe://attack/worker/", i))
	}
	files, err := o.issue(map[string]mtls.Subject{
		"server": {Hosts: []string{"127.0.0.1"}}, "relay": {URIs: uris}, "stranger": {URIs: []string{"spiffe://attack/visitor"}},
	})
	if err != nil {
		return nil, err
	}
	stranger, err := mtls.Load(files["stranger"])
	if err != nil {
		return nil, err
	}
	server, addr, err := o.serve(ctx, append(tlsFlags(files["server"]), "--tls-task-uri", taskURI)...)
	if err != nil {
		return nil, err
	}
	relay, local, err := o.listening(ctx, append([]string{"relay", "--upstream", addr}, tlsFlags(files["relay"])...)...)
	if err != nil {
		server.Kill()
		return nil, err
	}
	end := func() { relay.Kill(); server.Kill() }
	j, err := o.startTasks(ctx, local, steps)
	if err != nil {
		end()
		return nil, fmt.Errorf("%w\nlog of the server:\n%s\nlog of the relay:\n%s", err, server.Log.String(), relay.Log.String())
	}
	return &stage{victim: &victim{addr: addr, tls: stranger.Client("127.0.0.1")}, job: j, pid: server.PID, log: &server.Log, close: end}, nil
}

// issue makes an authority in a folder of its own, and certificates by their names.
func (o options) issue(subjects map[string]mtls.Subject) (map[string]mtls.Files, error) {
	dir, err := os.MkdirTemp(o.dir, "certificates")
	if err != nil {
		return nil, err
	}
	ca, err := mtls.NewAuthority(dir, "attack", time.Hour)
	files := make(map[string]mtls.Files)
	for name, s := range subjects {
		if err != nil {
			return nil, err
		}
		s.Name, s.Life = name, time.Hour
		err = ca.Issue(dir, s)
		files[name] = mtls.Files{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"), CA: filepath.Join(dir, "ca.pem")}
	}
	return files, err
}

func tlsFlags(f mtls.Files) []string {
	return []string{"--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA}
}

// A measure is what one run of the job came to.
type measure struct {
	pace
	peak int64    // resident memory of the server
	log  int64    // bytes that it logged
	err  error    // of the job
	seen sighting // what strangers got, and a person read
}

// patience is how long a job may take beyond its steps.
const patience = time.Minute

// measure runs the job for a while, beside strangers or alone.
func (s scene) measure(ctx context.Context, o options, steps time.Duration, strangers bool) (m measure, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, steps+patience, fmt.Errorf("%s: the job does not end", s.name))
	defer cancel()
	if err := o.everywhere.PinSelf(); err != nil {
		return m, err
	}
	at, err := s.open(ctx, o, steps)
	if err != nil {
		return m, fmt.Errorf("%s: %w", s.name, err)
	}
	defer at.close()
	if err := o.forStrangers.PinSelf(); err != nil {
		return m, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(1, len(o.forStrangers.List))))
	meanwhile, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { m.peak, err = peakMemory(meanwhile, at.pid) })
	if strangers {
		work.Go(func() { at.victim.attack(meanwhile, o, s.rows) })
	}
	if strangers && s.proof == byReading {
		work.Go(func() { at.victim.lookOn(meanwhile, o.binary) })
	}
	m.pace, m.err = at.job.end()
	stop()
	work.Wait()
	m.err = errors.Join(m.err, context.Cause(ctx))
	m.log, m.seen = at.log.Total(), at.victim.seen()
	return m, err
}

// peakMemory is the most memory that a process has held until ctx ends, or until it ended.
func peakMemory(ctx context.Context, pid int) (peak int64, err error) {
	for err == nil {
		var now int64
		if _, now, err = proc.Memory(pid); err == nil {
			peak = now
			err = pause.For(ctx, 50*time.Millisecond)
		}
	}
	if peak == 0 {
		return 0, err
	}
	return peak, nil
}
