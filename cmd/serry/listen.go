package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

const unixPrefix = "unix:"

// listen opens the address of a --listen flag: host:port, or unix:/path.
func listen(addr string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, unixPrefix)
	if !isUnix {
		l, err := net.Listen("tcp", addr)
		return l, taken(err)
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(path) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	return l, err
}

// taken adds to the error of a port that another process has which process that is.
func taken(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) || op.Addr == nil {
		return err
	}
	_, port, _ := net.SplitHostPort(op.Addr.String()) // it is one that was listened on
	s := &site{root: os.DirFS("/")}
	return hinted{err, fmt.Sprintf("port %s is taken by %s: end it, or choose another port", port, s.owner(port))}
}

// abandoned says whether path is a socket that a server left behind when it died.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// checkListen says what is wrong with the address of a --listen flag before it is opened.
func checkListen(flag, addr string) error {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		if path == "" {
			return fmt.Errorf("--%s %q: want a path after %s", flag, addr, unixPrefix)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("--%s %q: want host:port or unix:/path", flag, addr)
	}
	return nil
}

// printed is how clients write the address of l.
func printed(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return unixPrefix + l.Addr().String()
	}
	return l.Addr().String()
}
