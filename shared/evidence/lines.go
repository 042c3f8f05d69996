package evidence

import (
	"bytes"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxLine is the most that Firehose takes as one record, in bytes before base64 (AWS,
// https://docs.aws.amazon.com/firehose/latest/dev/limits.html).
const MaxLine = 1000 << 10

// partText is the most of a record's line that a part has, in bytes. As a JSON string, text
// that is a part of JSON is at most twice as long.
const partText = MaxLine/2 - 1<<10

// part is a part of a record whose line is too long.
type part struct {
	Part   int    `json:"part"`   // from 1
	Parts  int    `json:"parts"`  // of the record
	Record string `json:"record"` // the digest of the record's line
	Text   string `json:"text"`   // of the record's line
}

// partBegin is how the line of a part begins, and no other line.
const partBegin = `{"part":`

// Lines returns the record as one line of at most [MaxLine] bytes, or as numbered parts, each
// of them a line. Each line ends with a line feed. The lines depend only on the record.
func (r Record) Lines() ([][]byte, error) {
	line, err := seal(r)
	if err != nil {
		return nil, err
	}
	if len(line) < MaxLine {
		return [][]byte{append(line, '\n')}, nil
	}
	var texts []string
	for rest := string(line); rest != ""; {
		end := min(partText, len(rest))
		for end < len(rest) && !utf8.RuneStart(rest[end]) {
			end--
		}
		texts, rest = append(texts, rest[:end]), rest[end:]
	}
	lines := make([][]byte, len(texts))
	for i, text := range texts {
		if lines[i], err = seal(part{i + 1, len(texts), Digest(line), text}); err != nil {
			return nil, err
		}
		lines[i] = append(lines[i], '\n')
	}
	return lines, nil
}

// Joiner puts the parts of records together. The parts can come in any order, repeatedly
// (Firehose delivers at least once), and from several objects of the bucket. Its zero value
// is ready to use. It is not safe for concurrent use.
type Joiner struct {
	At string // where the lines come from, for Incomplete

	open   map[string]*joining // by the digest of the record
	size   int                 // of the texts of open
	joined map[string]bool
}

type joining struct {
	at    string // of the first part that was read
	parts int
	texts map[int]string
}

// maxOpen is the most that a Joiner keeps of the texts of incomplete records, in bytes. A test changes it.
var maxOpen = 1 << 30

// Join returns the line of a record for [Decode]: the line itself, or if it is the last missing
// part of a record, the record. It returns nil if parts are missing, or if it has
// returned the record before. The error wraps [ErrDamaged] if the line or the record is
// damaged.
func (j *Joiner) Join(line []byte) (record []byte, err error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if !bytes.HasPrefix(line, []byte(partBegin)) {
		return line, nil
	}
	body, err := open(line)
	var p part
	if err == nil && json.Unmarshal(body, &p, json.RejectUnknownMembers(true)) != nil {
		err = fmt.Errorf("%w: it is not a part", ErrDamaged)
	}
	if err != nil || j.joined[p.Record] {
		return nil, err
	}
	if j.open == nil {
		j.open, j.joined = map[string]*joining{}, map[string]bool{}
	}
	of := j.open[p.Record]
	if of == nil {
		of = &joining{j.At, p.Parts, map[int]string{}}
		j.open[p.Record] = of
	}
	before, repeated := of.texts[p.Part]
	if p.Parts != of.parts || p.Part < 1 || p.Part > p.Parts || repeated && before != p.Text {
		return nil, fmt.Errorf("%w: the parts of record %.8s do not belong together", ErrDamaged, p.Record)
	}
	if !repeated {
		if j.size += len(p.Text); j.size > maxOpen {
			j.size -= len(p.Text)
			return nil, fmt.Errorf("%w: too many records have missing parts", ErrDamaged)
		}
	}
	if of.texts[p.Part] = p.Text; len(of.texts) < of.parts {
		return nil, nil
	}
	delete(j.open, p.Record)
	j.joined[p.Record] = true
	var text strings.Builder
	for n := range of.parts {
		text.WriteString(of.texts[n+1])
	}
	j.size -= text.Len()
	record = []byte(text.String())
	if _, err := open(record); err != nil || Digest(record) != p.Record {
		return nil, fmt.Errorf("%w: the parts of record %.8s do not belong together", ErrDamaged, p.Record)
	}
	return record, nil
}

// Incomplete returns, for each record of which parts are missing, At of the part that was joined first.
func (j *Joiner) Incomplete() (at []string) {
	for _, of := range j.open {
		at = append(at, of.at)
	}
	slices.Sort(at)
	return at
}
