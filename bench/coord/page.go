package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// goroutines is how many goroutines a server of serry has, by its own page of metrics.
func (s *server) goroutines(ctx context.Context) (float64, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.metrics)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://serry/metrics", nil)
	if err != nil {
		return 0, err
	}
	page, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer page.Body.Close()
	lines := bufio.NewScanner(page.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(errors.New("the page of metrics does not tell the number of goroutines"), lines.Err())
}

// idle records how many goroutines a server has beyond one for each connection, while every task
// waits for something.
func (s *subject) idle(ctx context.Context) error {
	if s.metrics == "" {
		return nil
	}
	n, err := s.goroutines(ctx)
	s.add(goroutines, n-float64(len(s.Conns)))
	return err
}
