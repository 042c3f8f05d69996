package operate

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// versions are the two contents of one eventId: the one that the ledger has, and the one
// that is parked.
type versions struct {
	EventID string  `json:"eventId"`
	First   version `json:"first"`
	Parked  version `json:"parked"`
}

// version is what is known of one content.
type version struct {
	// State is that of the content in the ledger: published, pending or parked; "unknown" if
	// the ledger does not have the eventId, and "replaced" if it has the parked content.
	State      string    `json:"state"`
	At         time.Time `json:"at,omitzero"` // when it got the state
	DeliveryID string    `json:"deliveryId,omitempty"`
	SHA256     string    `json:"sha256,omitempty"`
	// Found reports whether the content is stored: parked, pending or as a claim check. The ledger
	// keeps only the digest of what is published.
	Found    bool   `json:"found"`
	Amount   string `json:"amount,omitempty"`
	Currency string `json:"currency,omitempty"`
	Status   string `json:"status,omitempty"`
	Where    string `json:"where,omitempty"` // the content can be found, if it is not stored
}

// read takes amount, currency and status from an event, or from its claim check, which has
// them as well.
func (v *version) read(event []byte) {
	if event == nil {
		return
	}
	member := func(of jsontext.Value, name string) jsontext.Value {
		var members map[string]jsontext.Value
		_ = json.Unmarshal(of, &members) // none if it is no object
		return members[name]
	}
	text := func(value jsontext.Value) string { return strings.Trim(string(value), `"`) }
	data := member(event, "eventData")
	v.Found, v.Amount, v.Currency = true, text(member(data, "amount")), text(member(data, "paymentCurrency"))
	v.Status = text(member(member(data, "paymentStatus"), "status"))
}

// contents returns the events of everything that is parked about an event, by their digests
// in hexadecimal: of deliveries, and those that could not be published.
func (d *stack) contents(ctx context.Context, eventID string) (map[string][]byte, error) {
	names, err := d.store.FindEvent(ctx, eventID)
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, name := range names {
		p, err := d.store.Get(ctx, name)
		if errors.Is(err, parking.ErrNotParked) {
			continue // the index is written first
		}
		if err != nil {
			return nil, err
		}
		if p.Event != nil {
			found[hex.EncodeToString(p.Digest)] = p.Event
			continue
		}
		delivery, _ := payment.DecodeDelivery(p.Payload) // without events if it is invalid
		for _, e := range delivery.Events {
			digest := ledger.DigestOf(e.Bytes)
			found[hex.EncodeToString(digest[:])] = e.Bytes
		}
	}
	return found, nil
}

// first returns the event of an item from the item itself, or from the bucket of large events; nil if it is
// in neither.
func (d *stack) first(ctx context.Context, item ledger.Item) ([]byte, error) {
	is := func(event []byte) bool { return ledger.DigestOf(event) == item.Digest }
	if is(item.Detail) {
		return item.Detail, nil
	}
	return claimcheck.Find(ctx, s3.NewBucket(d.objects, d.ClaimBucket), item.EventID, is)
}

// elsewhere says who has the first version of an event that is not stored.
func (p *program) elsewhere(d *stack, id string) string {
	text := "Payhook does not store the first version any more. Consumers have it, and for archiveRetention the " +
		"archive of the bus."
	if d.EvidenceBucket != "" {
		text += " Its delivery is found by: " + p.hint("evidence find "+id)
	}
	return text
}

// compare returns both versions of each event that is in conflict.
func (p *program) compare(ctx context.Context, d *stack, parked parking.Parked) ([]versions, error) {
	digests := parked.EventDigests
	if parked.Reason == parking.Unpublishable {
		digests = [][]byte{parked.Digest}
	}
	var all []versions
	for i, id := range parked.EventIDs[:min(len(parked.EventIDs), len(digests))] {
		v := versions{EventID: id, Parked: version{State: "parked", At: parked.ParkedAt.UTC(),
			DeliveryID: parked.DeliveryID, SHA256: hex.EncodeToString(digests[i])}}
		item, known, err := ledger.Find(ctx, d.ledger, id, true)
		if err != nil {
			return nil, err
		}
		switch digest := hex.EncodeToString(item.Digest[:]); {
		case !known:
			v.First.State = "unknown"
		case digest == v.Parked.SHA256:
			v.First.State = "replaced"
		default:
			v.First.DeliveryID, v.First.SHA256 = item.DeliveryID, digest
			v.First.State, v.First.At = stateOf(item)
		}
		found, err := d.contents(ctx, id)
		if err != nil {
			return nil, err
		}
		event := found[v.First.SHA256]
		if event == nil && v.First.SHA256 != "" {
			if event, err = d.first(ctx, item); err != nil {
				return nil, err
			}
		}
		if v.First.read(event); !v.First.Found {
			v.First.Where = p.elsewhere(d, id)
		}
		v.Parked.read(found[v.Parked.SHA256])
		all = append(all, v)
	}
	return all, nil
}

// writeVersions writes both versions of each event side by side.
func writeVersions(w io.Writer, all []versions, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range all {
		fmt.Fprintf(t, "\nevent %s\n\tFIRST VERSION\tPARKED VERSION\n", cli.Plain(v.EventID))
		first, parked := v.First.lines(now), v.Parked.lines(now)
		for i, name := range []string{"state", "delivery", "sha256", "amount", "currency", "status"} {
			fmt.Fprintf(t, "%s\t%s\t%s\n", name, cli.Plain(first[i]), cli.Plain(parked[i]))
		}
		if v.First.Where != "" {
			fmt.Fprintln(t, v.First.Where)
		}
	}
	return t.Flush()
}

// lines returns the texts for the lines of a comparison.
func (v version) lines(now time.Time) []string {
	state := v.State
	if !v.At.IsZero() {
		state += " " + cli.Ago(v.At, now)
	}
	content := func(value string) string {
		if !v.Found {
			return "not available"
		}
		return cmp.Or(value, "none")
	}
	return []string{state, cmp.Or(v.DeliveryID, "-"), fmt.Sprintf("%.16s", cmp.Or(v.SHA256, "-")),
		content(v.Amount), content(v.Currency), content(v.Status)}
}
