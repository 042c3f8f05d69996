package proof

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"payhook.example/shared/calls"
	"payhook.example/shared/objects"
)

// MaxSize is the most bytes of a proof that [Get] reads. Lambda's largest event has 6 MB (AWS, "Lambda quotas").
const MaxSize = 32 << 20

// Put stores p under its name unless it is stored, and reports whether it was, also if an earlier call stored it
// and returned an error. It is for the evidence bucket if p is accepted, and otherwise for the parking bucket.
func Put(ctx context.Context, c objects.Creator, p Proof) (name string, existed bool, err error) {
	text, err := p.Encode()
	if err != nil {
		return "", false, err
	}
	name = p.Name()
	if existed, err = c.Create(ctx, name, text); err != nil {
		return "", false, fmt.Errorf("proof: put: %w", err)
	}
	return name, existed, nil
}

// Get returns the proof of that name. The error wraps [ErrName], [objects.ErrNotFound] or [ErrDamaged] if there is
// none. It does not verify the proof.
func Get(ctx context.Context, g objects.Getter, name string) (p Proof, err error) {
	n, err := ParseName(name)
	if err != nil {
		return p, err
	}
	text, err := g.Get(ctx, name, MaxSize)
	if err == nil {
		if p, err = Decode(text); err == nil {
			p.LockDays, err = n.LockDays, p.CheckName(name)
		}
	}
	if err != nil {
		return p, fmt.Errorf("proof: %s: %w", name, err)
	}
	return p, nil
}

// List returns the objects of a reason whose time is not before from and before until, in the order of these times;
// those that are accepted, for each lock in this order. It ends with the first error. A zero time means no limit. It
// leaves out objects whose names [ParseName] does not accept.
func List(ctx context.Context, l objects.Lister, reason Reason,
	from, until time.Time) iter.Seq2[objects.Object, error] {
	return func(yield func(objects.Object, error) bool) {
		all, err := folders(ctx, l, reason)
		for _, folder := range all {
			after := ""
			if !from.IsZero() {
				after = After(folder, from)
			}
			for o, failed := range objects.All(ctx, l, folder, after) {
				if err = failed; err != nil || !until.IsZero() && o.Key > After(folder, until) {
					break
				}
				if _, odd := ParseName(o.Key); odd == nil && !yield(o, nil) {
					return
				}
			}
			if err != nil {
				break
			}
		}
		if err != nil {
			yield(objects.Object{}, fmt.Errorf("proof: list: %w", err))
		}
	}
}

// folders returns where the proofs of a reason are. Those that are accepted have a folder for each lock.
func folders(ctx context.Context, l objects.Lister, reason Reason) (all []string, err error) {
	if reason != Accepted {
		return []string{reason.Folder(0)}, nil
	}
	prefix, after := string(Accepted)+"/", ""
	for {
		page, _, err := l.List(ctx, prefix, after, 1)
		if err != nil || len(page) == 0 {
			return all, err
		}
		days, _, _ := strings.Cut(strings.TrimPrefix(page[0].Key, prefix), "/")
		all = append(all, prefix+days+"/")
		after = prefix + days + "0" // 0 follows /, so this follows all in the folder
	}
}

// parked returns the names of all invalid deliveries, and then of all conflicts, by their times.
func parked(ctx context.Context, l objects.Lister) (names []string, err error) {
	for _, reason := range []Reason{Invalid, Conflict} {
		for o, err := range List(ctx, l, reason, time.Time{}, time.Time{}) {
			if err != nil {
				return nil, err
			}
			names = append(names, o.Key)
		}
	}
	return names, nil
}

// FindDelivery returns the names of the invalid deliveries and conflicts with that deliveryId. It reads no proof.
func FindDelivery(ctx context.Context, l objects.Lister, id string) ([]string, error) {
	names, err := parked(ctx, l)
	return slices.DeleteFunc(names, func(name string) bool {
		n, err := ParseName(name)
		return err != nil || n.ID != strings.ToLower(id)
	}), err
}

// Reader reads and lists objects.
type Reader interface {
	objects.Getter
	objects.Lister
}

// atOnce is how many proofs are read at the same time.
const atOnce = 16

// Concerned returns the names of the invalid deliveries and conflicts by their deliveryIds and by the eventIds that
// they concern, in lower case. It reads all of them, and says how many more it has read unless progress is nil. If some
// are damaged, the result has all others, and the error wraps [ErrDamaged] and names each of them.
func Concerned(ctx context.Context, r Reader, progress func(more int)) (map[string][]string, error) {
	names, err := parked(ctx, r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx) // the first error counts
	defer cancel(nil)
	ids, damaged := make([][]string, len(names)), make([]error, len(names))
	var mu sync.Mutex // held while progress is called
	calls.Parallel(len(names), atOnce, func(i int) {
		switch p, err := Get(ctx, r, names[i]); {
		case err == nil:
			ids[i] = append(slices.Clone(p.EventIDs), p.DeliveryID)
		case errors.Is(err, ErrDamaged):
			damaged[i] = err
		case !errors.Is(err, objects.ErrNotFound): // its retention ended after it was listed
			cancel(err)
		}
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			progress(1)
		}
	})
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for i, name := range names {
		for _, id := range ids[i] {
			if id = strings.ToLower(id); id != "" && !slices.Contains(all[id], name) {
				all[id] = append(all[id], name)
			}
		}
	}
	return all, errors.Join(damaged...)
}

// Decision is what a person has decided about what a proof is stored for.
type Decision string

// The decisions.
const (
	Open      Decision = "open"      // not decided
	Replayed  Decision = "replayed"  // it was replayed and accepted, or parked for another reason
	Dismissed Decision = "dismissed" // it needs no replay
)

// Note records who decided, when, and why.
type Note struct {
	By      string    `json:"by,omitempty"` // the name that the caller of the redrive function passed
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
	Content string    `json:"content,omitempty"` // of a conflict
	// AgeAccepted is whether a rejected webhook was replayed although it is too old by now.
	AgeAccepted bool `json:"ageAccepted,omitzero"`
}

// MaxNote is the most bytes that a note may have, in JSON.
const MaxNote = 1 << 10

// ErrNote is returned for a note of more than [MaxNote] bytes.
var ErrNote = fmt.Errorf("proof: the note of a decision has more than %d bytes: shorten its reason", MaxNote)

// Check returns [ErrNote] if the note is too long, so that this is known before a replay.
func (n Note) Check() error {
	_, err := n.encode()
	return err
}

func (n Note) encode() ([]byte, error) {
	text, err := json.Marshal(n)
	if err == nil && len(text) > MaxNote {
		err = ErrNote
	}
	return text, err
}

// Decide records that what is stored under a name is replayed or dismissed. The note is stored beside the proof,
// as replayed/NAME or dismissed/NAME, and stays when the proof expires. An earlier note of the same decision is kept.
func Decide(ctx context.Context, c objects.Creator, d Decision, name string, n Note) error {
	text, err := n.encode()
	if err != nil {
		return err
	}
	if _, err = ParseName(name); err != nil {
		return err
	}
	if _, err = c.Create(ctx, string(d)+"/"+name, text); err != nil {
		return fmt.Errorf("proof: %s %s: %w", d, name, err)
	}
	return nil
}

// DecisionOn returns the decision about a name, and its note unless it is open. What was both dismissed and replayed
// is replayed.
func DecisionOn(ctx context.Context, g objects.Getter, name string) (d Decision, n Note, err error) {
	for _, d := range []Decision{Replayed, Dismissed} {
		text, err := g.Get(ctx, string(d)+"/"+name, MaxNote)
		if errors.Is(err, objects.ErrNotFound) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err != nil {
			return "", Note{}, fmt.Errorf("proof: %s/%s: %w", d, name, err)
		}
		return d, n, nil
	}
	return Open, Note{}, nil
}

// Decisions returns the names that are not open, with the decisions about them, as [DecisionOn] does.
func Decisions(ctx context.Context, l objects.Lister) (map[string]Decision, error) {
	decided := map[string]Decision{}
	for _, d := range []Decision{Dismissed, Replayed} {
		prefix := string(d) + "/"
		for o, err := range objects.All(ctx, l, prefix, "") {
			if err != nil {
				return nil, fmt.Errorf("proof: list: %w", err)
			}
			decided[strings.TrimPrefix(o.Key, prefix)] = d
		}
	}
	return decided, nil
}

// CountOpen returns the numbers of invalid deliveries, conflicts and rejected webhooks that are stored and not decided.
func CountOpen(ctx context.Context, l objects.Lister) (map[Reason]int, error) {
	decided, err := Decisions(ctx, l)
	if err != nil {
		return nil, err
	}
	open := map[Reason]int{}
	for _, reason := range []Reason{Invalid, Conflict, Rejected} {
		for o, err := range List(ctx, l, reason, time.Time{}, time.Time{}) {
			if err != nil {
				return nil, err
			}
			if decided[o.Key] == "" {
				open[reason]++
			}
		}
	}
	return open, nil
}
