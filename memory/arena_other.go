//go:build !linux

package memory

import "os"

func newShared(string, int64, bool) (*os.File, bool, error) { return nil, false, ErrUnsupported }

func mapShared(*os.File, int64, bool) ([]byte, error) { return nil, ErrUnsupported }

func unmapShared([]byte) error { return nil }

func sealShared(*os.File) error { return ErrUnsupported }

func sharedSize(*os.File) (int64, error) { return 0, ErrUnsupported }
