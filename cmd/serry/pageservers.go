package main

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire/mtls"
)

// address is where people find the page, without the token.
func (p *page) address() string {
	address, _, _ := strings.Cut(p.url, "#")
	return address
}

// A serverSurvey asks the servers of a service for their pages, as serry peers asks them.
type serverSurvey struct {
	query peersQuery // set in newServerSurvey, then constant

	mu struct {
		sync.Mutex
		here  string   // address of this page
		known []string // addresses of servers; those in an etcd do not know all others
	}
}

// newServerSurvey asks servers by some addresses, and all others that these know.
func newServerSurvey(addresses []string, files mtls.Files) *serverSurvey {
	s := &serverSurvey{query: peersQuery{access: access{tls: files, timeout: defaultTimeout}}}
	s.mu.known = addresses
	return s
}

// at notes where the page is that the survey is for.
func (s *serverSurvey) at(url string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.here = url
}

// Servers implements [web.Network].
func (p *pageSource) Servers(ctx context.Context) ([]web.ServerLink, error) {
	if p.servers == nil {
		return nil, nil
	}
	return p.servers.ask(ctx)
}

func (s *serverSurvey) ask(ctx context.Context) ([]web.ServerLink, error) {
	s.mu.Lock()
	q, here := s.query, s.mu.here
	q.address = strings.Join(s.mu.known, ",")
	s.mu.Unlock()
	if q.address == "" {
		return nil, nil
	}
	found, err := q.survey(ctx, nil)
	if err != nil {
		return nil, err
	}
	var all []web.ServerLink
	var addresses []string
	for _, one := range found {
		all = append(all, web.ServerLink{Name: one.Name, Address: one.Address, State: one.State, Lag: one.Lag, Page: one.Page, Here: one.Page == here && here != "", Local: isFar(one)})
		if one.Address != "" {
			addresses = append(addresses, one.Address)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.known = unique(append(slices.Clone(s.mu.known), addresses...))
	s.mu.known = s.mu.known[:min(len(s.mu.known), maxServers)]
	return all, nil
}

// isFar says whether a server has a page on the loopback of another host, where a link does not lead.
func isFar(s serverStatus) bool {
	u, err := url.Parse(s.Page)
	if s.Page == "" || err != nil || !onLoopback(u.Hostname()) {
		return false
	}
	host, _, _ := net.SplitHostPort(s.Address) // it is where a server listens, which has a port
	if host == "" || onLoopback(host) {
		return false
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(name, host) {
		return false
	}
	own, _ := ownAddresses() // none is known
	ip, err := netip.ParseAddr(host)
	return err != nil || !slices.Contains(own, ip.Unmap())
}

func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
