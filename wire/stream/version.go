package stream

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Version says which protocol an end speaks. Ends of one major version understand each other: a higher
// minor version only adds what a lower one may skip (docs/WIRE.md has the rules). Ends of two major
// versions do not.
type Version struct{ Major, Minor uint32 }

// What this source speaks.
const (
	major = 1
	minor = 1
)

// claimed is empty, or the version that a build claims to speak. Only a test of two builds sets it, when
// it links one: -ldflags "-X github.com/serry-dev/serry/wire/stream.claimed=1.9".
var claimed string

// Speaks is the version of this build.
func Speaks() Version {
	v := Version{major, minor}
	if claimed == "" {
		return v
	}
	if _, err := fmt.Sscanf(claimed, "%d.%d", &v.Major, &v.Minor); err != nil {
		panic("stream: linked with version " + claimed)
	}
	return v
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// A VersionError says that a server and a host have no version of the stream in common.
type VersionError struct{ Server, Host Version }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the server speaks version %v of serry's stream and this host version %v: use one release of serry for both",
		e.Server, e.Host)
}

// capabilities are what an end can do beyond what its major version demands, a bit each. An end uses what
// both ends can, and ignores bits that it does not know. Version 1.1 defines none.
type capabilities uint64

// A speech is how an end speaks: what a hello and a welcome begin with.
type speech struct {
	version Version
	can     capabilities
}

// speechOf is the speech of an end of a version.
func speechOf(v Version) speech {
	s := speech{version: v}
	if s.later() {
		s.can = 1 << 63
	}
	return s
}

// foreign says whether the other end speaks another major version than ours. The version comes first, so
// that it is known even where the fields after it are not. No version has the number 0: it stands for one
// that could not be read.
func (s speech) foreign(ours Version) bool {
	return s.version.Major != 0 && s.version.Major != ours.Major
}

// later says whether the speech is that of a later build of the same major version, which only a test can
// claim. Such an end says things that this build does not know: a capability, a field behind the last one
// and an optional frame. So the test shows that they are skipped.
func (s speech) later() bool { return s.version.Major == major && s.version.Minor > minor }

// appendLater adds a field that this build does not know, if the speech is that of a later one.
func (s speech) appendLater(b []byte) []byte {
	if s.later() {
		b = appendString(b, "a field of a later version")
	}
	return b
}

// appendOptional adds a frame that this build does not know, if the speech is that of a later one.
func (s speech) appendOptional(b []byte) []byte {
	if !s.later() {
		return b
	}
	start, body := len(b), []byte("a body")
	b = appendString(begin(b, frameOptional+77), "a frame of a later version")
	return endWith(b, start, body, bulkOf(body))
}

func appendSpeech(b []byte, s speech) []byte {
	return binary.AppendUvarint(appendVersion(b, s.version), uint64(s.can))
}

func readSpeech(f *fields) speech {
	return speech{readVersion(f), capabilities(f.uvarint())}
}

func appendVersion(b []byte, v Version) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(v.Major)), uint64(v.Minor))
}

func readVersion(f *fields) Version {
	major, minor := f.uvarint(), f.uvarint()
	if major > math.MaxUint32 || minor > math.MaxUint32 {
		f.fail()
	}
	return Version{uint32(major), uint32(minor)}
}
