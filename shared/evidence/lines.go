package evidence

import (
	"bytes"
	"fmt"
	"slices"
)

// MaxLine is the most that Firehose takes as one record, in bytes before base64 (AWS,
// https://docs.aws.amazon.com/firehose/latest/dev/limits.html).
const MaxLine = 1000 << 10

// partData is the most of a record's line that a part has, in bytes. It is a part's line with base64.
const partData = MaxLine/4*3 - 1<<10

// part is a part of a record whose line is too long.
type part struct {
	Part   int    `json:"part"`   // from 1
	Parts  int    `json:"parts"`  // of the record
	Record string `json:"record"` // the digest of the record's line
	Data   []byte `json:"data"`   // of the record's line

	at, digest string // of the part's line
}

// partBegin is how the line of a part begins, and no other line.
const partBegin = `{"part":`

// Lines returns the record as one line of at most [MaxLine] bytes, or as numbered parts, each
// of them a line. Each line ends with a line feed. The lines depend only on the record.
func (r Record) Lines() (lines [][]byte, err error) {
	line, err := seal(r)
	if err != nil {
		return nil, err
	}
	if len(line) < MaxLine {
		return [][]byte{append(line, '\n')}, nil
	}
	parts := (len(line) + partData - 1) / partData
	for data := range slices.Chunk(line, partData) {
		one, err := seal(part{Part: len(lines) + 1, Parts: parts, Record: Digest(line), Data: data})
		if err != nil {
			return nil, err
		}
		lines = append(lines, append(one, '\n'))
	}
	return lines, nil
}

// Joiner puts the parts of records together. The parts can come in any order, repeatedly
// (Firehose delivers at least once), and from several objects of the bucket. It keeps the parts of
// incomplete records in memory. Its zero value is ready to use. It is not safe for concurrent use.
type Joiner struct {
	At string // where the lines come from, for Incomplete

	records map[string][]part // by the digest of the record; nil after it was joined
}

// Join returns the line of a record for [Decode]: the line itself, or if it is the last missing
// part of a record, the record. It returns nil if parts are missing, or if it has
// returned the record before. The error wraps [ErrDamaged] if a part is damaged, or if
// the parts are not those of the record.
func (j *Joiner) Join(line []byte) (record []byte, err error) {
	if !bytes.HasPrefix(line, []byte(partBegin)) {
		return line, nil
	}
	p, err := open[part](line)
	if err != nil {
		return nil, err
	}
	p.at, p.digest = j.At, Digest(line)
	if j.records == nil {
		j.records = map[string][]part{}
	}
	parts, known := j.records[p.Record]
	if known && parts == nil || slices.ContainsFunc(parts, func(q part) bool { return q.digest == p.digest }) {
		return nil, nil
	}
	if parts = append(parts, p); len(parts) < p.Parts {
		j.records[p.Record] = parts
		return nil, nil
	}
	j.records[p.Record] = nil
	slices.SortFunc(parts, func(a, b part) int { return a.Part - b.Part })
	for _, one := range parts {
		record = append(record, one.Data...)
	}
	if Digest(record) != p.Record {
		return nil, fmt.Errorf("%w: the parts of record %.8s do not belong together", ErrDamaged, p.Record)
	}
	return record, nil
}

// Incomplete returns, for each record of which parts are missing, At of the part that was joined first.
func (j *Joiner) Incomplete() (at []string) {
	for _, parts := range j.records {
		if parts != nil {
			at = append(at, parts[0].at)
		}
	}
	slices.Sort(at)
	return at
}
