//go:build !unix

package socket

import "net"

// A Conn exists on Unix systems only; elsewhere connections are read and written by their methods.
type Conn struct{}

// New returns nil.
func New(net.Conn) *Conn { return nil }

// Read is never called.
func (*Conn) Read(size, keep int) ([]byte, error) { panic("socket: no raw connections here") }

// Try is never called.
func (*Conn) Try([]byte) (int, error) { panic("socket: no raw connections here") }

// Wait is never called.
func (*Conn) Wait([]byte) (int, error) { panic("socket: no raw connections here") }
