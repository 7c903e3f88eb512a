package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
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
	hide      []string
	write     bool
	writeFile string
	optional  bool // the user did not ask for it, so the job runs without it, too

	identity  *mtls.Identity // that the command has, or nil; set before the page is opened
	shownOnly bool           // the identity is one to show to a service, not that of a server
}

func (s *pageSettings) define(f *pflag.FlagSet, listen string) {
	f.StringVar(&s.listen, "web", "", listen)
	f.StringSliceVar(&s.hosts, "web-host", nil, "further `names` by which browsers may reach the page of --web, such as that of a proxy")
	f.StringVar(&s.tokenFile, "web-token-file", "", "`file` with the token that lets people see the page (default one that is drawn and printed)")
	f.StringSliceVar(&s.hide, "web-hide", nil, "what the page does not show, as `words`: values, logs, or patterns of keys such as ckpt/*")
	f.BoolVar(&s.write, "web-write", false, "let people change the job on the page, who have a second token")
	f.StringVar(&s.writeFile, "web-write-token-file", "", "`file` with that token (default one that is drawn and printed)")
}

// check says what is wrong with the flags.
func (s *pageSettings) check() error {
	if s.listen == "" {
		if len(s.hosts) > 0 || s.tokenFile != "" || len(s.hide) > 0 || s.write || s.writeFile != "" {
			return errors.New("--web-host, --web-token-file, --web-hide and --web-write are for a page: give --web, too")
		}
		return nil
	}
	if s.writeFile != "" && !s.write {
		return errors.New("--web-write-token-file is for --web-write: give it, too")
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
	return readToken("web-token-file", s.tokenFile)
}

// readToken reads a token from the file of a flag, or draws one.
func readToken(flag, name string) (token string, drawn bool, err error) {
	if name == "" {
		return web.NewToken(), true, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return "", false, fmt.Errorf("--%s: %w", flag, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	token = strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", false, fmt.Errorf("--%s: %w", flag, err)
	case len(text) > maxToken:
		return "", false, fmt.Errorf("--%s %s: more than %d bytes", flag, name, maxToken)
	case len(token) < web.MinToken:
		return "", false, fmt.Errorf("--%s %s: a token of %d characters; want %d or more", flag, name, len(token), web.MinToken)
	}
	return token, false, nil
}

// A page is the page of a job that this process serves.
type page struct {
	server *web.Server
	source source
	served chan struct{} // it is not served any more
	url    string        // to look at the job
	write  string        // to change it; or empty
}

// A source is what a page shows, until it is closed.
type source interface {
	web.Source
	panels() web.Panels // but for acts
	close()
}

// open serves the page of what at shows. acts may change the job, if --web-write is given. Without --web there is no page, and nil.
func (s *pageSettings) open(at source, acts *pageActs, log *slog.Logger) (*page, error) {
	if s.listen == "" {
		return nil, nil
	}
	token, drawn, err := s.token()
	if err != nil {
		return nil, err
	}
	config := web.Config{Source: at, Token: token, Log: log, Hide: s.hide, Panels: at.panels()}
	drawnToWrite := false
	if s.write {
		if config.WriteToken, drawnToWrite, err = readToken("web-write-token-file", s.writeFile); err != nil {
			return nil, err
		}
		config.Panels.Acts = acts
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
	config.Hosts = hosts
	scheme, names, err := s.secure(&config, l)
	var server *web.Server
	if err == nil {
		server, err = web.New(config)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	if config.TLS == nil && open(l.Addr()) {
		log.Warn("plain text: the token of the page can be read on the way to it; put a proxy with TLS before it", "web", printed(l))
	}
	p := &page{server: server, source: at, served: make(chan struct{}), url: scheme + "://" + s.reached(l, names) + "/"}
	if known, ok := at.(*pageSource); ok {
		known.servers.at(p.url)
	}
	if drawnToWrite {
		p.write = p.url + "#token=" + config.WriteToken
	}
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

// secure makes the page speak HTTPS where the command has a certificate: that of a server, or at an address that other hosts reach. A
// browser that goes to loopback would refuse the certificate of a rank or a relay, and nothing leaves the host there. The names are those
// of the certificate.
func (s *pageSettings) secure(c *web.Config, l net.Listener) (scheme string, names []string, err error) {
	if s.identity == nil || s.shownOnly && !open(l.Addr()) {
		return "http", nil, nil
	}
	if names, err = s.identity.Hosts(); err != nil {
		return "", nil, err
	}
	c.TLS = s.identity.Browsers()
	c.Hosts = append(slices.Clone(c.Hosts), names...)
	return "https", names, nil
}

// reached is the address at which a browser reaches l; by one of some names, if there are any.
func (s *pageSettings) reached(l net.Listener, names []string) string {
	host, port, _ := net.SplitHostPort(l.Addr().String()) // it is one that was listened on
	candidates := []string{host}
	switch ip := net.ParseIP(host); {
	case ip == nil:
	case ip.IsUnspecified():
		candidates = nil
		if name, err := os.Hostname(); err == nil {
			candidates = append(candidates, name)
		}
		candidates = append(append(candidates, names...), "localhost")
	case ip.IsLoopback():
		candidates = append(candidates, "localhost")
	}
	host = candidates[0]
	if i := slices.IndexFunc(candidates, func(c string) bool { return slices.Contains(names, c) }); i >= 0 {
		host = candidates[i]
	}
	return net.JoinHostPort(host, port)
}

// say prints where the page is.
func (p *page) say(out io.Writer) {
	fmt.Fprintf(out, "serry: page at %s\n", p.url)
	if p.write != "" {
		fmt.Fprintf(out, "serry: page to change the job at %s\n", p.write)
	}
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
	servers *serverSurvey // or nil; set before the page is opened

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
	if r := p.mu.remote; r != nil && r.broken.Err() == nil { // another request was faster, and uses it
		fresh.Close()
		return r, nil
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
func (p *pageSource) Stacks(ctx context.Context, of []string) (web.Stacks, error) {
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
		if id, err := serry.ParseTaskID(t.Task); err == nil && t.State == wire.StateConnected && (of == nil || slices.Contains(of, t.Task)) {
			tasks, names = append(tasks, id), append(names, t.Task)
		}
	}
	if len(tasks) == 0 {
		return web.Stacks{}, errors.New("none of these ranks is connected")
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
