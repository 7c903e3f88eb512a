package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/mtls"
)

// pageSettings are the flags of commands that serve a page.
type pageSettings struct {
	listen    string
	hosts     []string
	tokenFile string
	optional  bool // the user did not ask for it, so the job runs without it, too
}

func (s *pageSettings) define(f *pflag.FlagSet, listen string) {
	f.StringVar(&s.listen, "web", "", listen)
	f.StringSliceVar(&s.hosts, "web-host", nil, "further `names` by which browsers may reach the page of --web, such as that of a proxy")
	f.StringVar(&s.tokenFile, "web-token-file", "", "`file` with the token that lets people see the page (default one that is drawn and printed)")
}

// check says what is wrong with the flags.
func (s *pageSettings) check() error {
	if s.listen == "" {
		if len(s.hosts) > 0 || s.tokenFile != "" {
			return errors.New("--web-host and --web-token-file are for a page: give --web, too")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(s.listen)
	if err != nil || strings.Contains(port, "/") {
		return fmt.Errorf("--web %q: want host:port", s.listen)
	}
	if host == "" { // a page is not for a network unless the user says so
		s.listen = net.JoinHostPort("localhost", port)
	}
	return nil
}

// maxToken is how many bytes the file of a token may have.
const maxToken = 4 << 10

// token is the one that lets people see the page, and whether it was drawn for this process.
func (s *pageSettings) token() (token string, drawn bool, err error) {
	if s.tokenFile == "" {
		return web.NewToken(), true, nil
	}
	f, err := os.Open(s.tokenFile)
	if err != nil {
		return "", false, fmt.Errorf("--web-token-file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	token = strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", false, fmt.Errorf("--web-token-file: %w", err)
	case len(text) > maxToken:
		return "", false, fmt.Errorf("--web-token-file %s: more than %d bytes", s.tokenFile, maxToken)
	case len(token) < web.MinToken:
		return "", false, fmt.Errorf("--web-token-file %s: a token of %d characters; want %d or more", s.tokenFile, len(token), web.MinToken)
	}
	return token, false, nil
}

// A page is the page of a job that this process serves.
type page struct {
	server *web.Server
	source *pageSource
	served chan struct{} // it is not served any more
	url    string        // for people to open
}

// open serves the page of the job whose service at says where it is. Without --web there is none, and nil.
func (s *pageSettings) open(at *pageSource, log *slog.Logger) (*page, error) {
	if s.listen == "" {
		return nil, nil
	}
	token, drawn, err := s.token()
	if err != nil {
		return nil, err
	}
	l, err := listen(s.listen)
	if err != nil {
		return nil, err
	}
	hosts := s.hosts
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(s.listen); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	server, err := web.New(web.Config{Source: at, Token: token, Hosts: hosts, Log: log})
	if err != nil {
		l.Close()
		return nil, err
	}
	if open(l.Addr()) {
		log.Warn("plain text: the token of the page can be read on the way to it; put a proxy with TLS before it", "web", printed(l))
	}
	p := &page{server: server, source: at, served: make(chan struct{}), url: "http://" + s.reached(l) + "/"}
	if drawn {
		p.url += "#token=" + token
	}
	go func() {
		defer close(p.served)
		if err := server.Serve(l); err != nil {
			log.Error("page ended", "err", err)
		}
	}()
	return p, nil
}

// reached is the address at which a browser reaches l.
func (s *pageSettings) reached(l net.Listener) string {
	host, port, _ := net.SplitHostPort(l.Addr().String()) // it is one that was listened on
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}

func (p *page) close() {
	if p == nil {
		return
	}
	p.server.Close()
	<-p.served
	p.source.close()
}

// A pageSource asks the service of a job for its page, as commands ask it. It implements [web.Source], and
// [launch.Directory]: each attempt of a job may have a service of its own.
type pageSource struct {
	mu struct {
		sync.Mutex
		access access
		remote *remote // or nil: not asked yet, or at another address
	}
}

func newPageSource(address string, files mtls.Files) *pageSource {
	p := &pageSource{}
	p.mu.access = access{address: address, tls: files, timeout: defaultTimeout}
	return p
}

// Serves notes where the service of an attempt is ([launch.Directory]).
func (p *pageSource) Serves(address string, _ int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if full, err := fullAddresses(address); err == nil && full != p.mu.access.address {
		p.mu.access.address = full
		p.drop()
	}
}

// drop closes the connection. It needs mu.
func (p *pageSource) drop() {
	if p.mu.remote != nil {
		p.mu.remote.Close()
		p.mu.remote = nil
	}
}

func (p *pageSource) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
}

// errNoService is the answer before the first attempt of a job has begun.
var errNoService = errors.New("the job has not begun yet")

// open is the service, connected to.
func (p *pageSource) open(ctx context.Context) (*remote, error) {
	p.mu.Lock()
	r, a := p.mu.remote, p.mu.access
	p.mu.Unlock()
	if r != nil && r.broken.Err() == nil {
		return r, nil
	}
	if a.address == "" {
		return nil, errNoService
	}
	fresh, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.access.address != a.address { // another attempt has begun meanwhile
		fresh.Close()
		return nil, errNoService
	}
	p.drop()
	p.mu.remote = fresh
	return fresh, nil
}

// Look implements [web.Source].
func (p *pageSource) Look(ctx context.Context) (diagnose.Evidence, error) {
	r, err := p.open(ctx)
	if err != nil {
		return diagnose.Evidence{}, err
	}
	return r.evidence(ctx)
}

// Stacks implements [web.Source].
func (p *pageSource) Stacks(ctx context.Context) (web.Stacks, error) {
	r, err := p.open(ctx)
	if err != nil {
		return web.Stacks{}, err
	}
	s, err := r.status(ctx, wire.StatusQuery{Tasks: true})
	if err != nil {
		return web.Stacks{}, err
	}
	var tasks []serry.TaskID
	var names []string
	for _, t := range s.Tasks {
		if id, err := serry.ParseTaskID(t.Task); err == nil && t.State == wire.StateConnected {
			tasks, names = append(tasks, id), append(names, t.Task)
		}
	}
	if len(tasks) == 0 {
		return web.Stacks{}, errors.New("no rank is connected")
	}
	g, err := r.gather(ctx, wire.Inquiry{Kind: wire.StacksEvidence, Tasks: tasks, Fold: true, Wait: farPatience})
	if err != nil {
		return web.Stacks{}, err
	}
	readings, unknown := joinFar(nil, names, farReadings(g, tasks))
	return web.Stacks{Version: outputVersion, Groups: fold(readings), Elsewhere: orEmpty(unknown)}, nil
}

// Closes implements [launch.Directory]. The page keeps what it shows when its service ends.
func (p *pageSource) Closes() {}

// directories are several, all of which are told.
type directories []launch.Directory

// Serves implements [launch.Directory].
func (all directories) Serves(address string, attempt int) {
	for _, d := range all {
		d.Serves(address, attempt)
	}
}

// Closes implements [launch.Directory].
func (all directories) Closes() {
	for _, d := range all {
		d.Closes()
	}
}
