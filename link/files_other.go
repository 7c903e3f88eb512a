//go:build !linux

package link

import (
	"os"

	"github.com/serry-dev/serry/wire/conn"
)

func writeFile(*conn.Conn, []byte, *os.File) error { return ErrNoLending }

func readFile(*conn.Conn, []byte) (*os.File, error) { return nil, ErrNoLending }
