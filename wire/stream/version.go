package stream

import (
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

// support is which protocol an end supports: what a hello and a welcome begin with.
type support struct {
	version Version
	can     capabilities
}

// supportOf is what an end of a version supports.
func supportOf(v Version) support {
	s := support{version: v}
	if s.isLater() {
		s.can = 1 << 63
	}
	return s
}

// incompatible says whether the other end speaks another major version. The version comes first,
// so that it is known even where the fields after it are not. No version has the number 0: it stands for a
// version that could not be read.
func (s support) incompatible(ours Version) bool {
	return s.version.Major != 0 && s.version.Major != ours.Major
}

// isLater says whether the end is a later build of the same major version, which only a test can claim. Such
// an end sends things that this build does not know: a capability, a field behind the last one and an
// optional frame. So the test shows that they are skipped.
func (s support) isLater() bool { return s.version.Major == major && s.version.Minor > minor }

// later adds a field that this build does not know, if the end is a later one.
func (s support) later(c *codec) {
	if text := "a field of a later version"; s.isLater() && !c.reading {
		c.text(&text, maxWord)
	}
}

// appendOptional adds a frame that this build does not know, if the end is a later one.
func (s support) appendOptional(b []byte) []byte {
	if !s.isLater() {
		return b
	}
	start, body, text := len(b), []byte("a body"), "a frame of a later version"
	c := codec{b: begin(b, frameOptional+77)}
	c.text(&text, maxWord)
	return end(c.b, start, body, bodyInfoOf(body))
}

func (s *support) fields(c *codec) {
	s.version.fields(c)
	number(c, &s.can)
}

func (v *Version) fields(c *codec) {
	major, minor := uint64(v.Major), uint64(v.Minor)
	number(c, &major)
	number(c, &minor)
	if major > math.MaxUint32 || minor > math.MaxUint32 {
		c.fail()
		major, minor = 0, 0
	}
	v.Major, v.Minor = uint32(major), uint32(minor)
}
