// Package serrypb holds the messages of serry's own clients: requests that have the form of the
// events of a coord.Machine, and replies with errors that keep their facts. Package wire gives them
// their meaning; only it and tests of the wire should need this one.
package serrypb
