package operate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
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
	// Found reports whether the content is stored where this program reads: the ledger
	// keeps only the digest of what is published.
	Found    bool   `json:"found"`
	Amount   string `json:"amount,omitempty"`
	Currency string `json:"currency,omitempty"`
	Status   string `json:"status,omitempty"`
}

// read takes amount, currency and status from an event, or from its claim check, which has
// them as well.
func (v *version) read(event []byte) {
	var e struct {
		EventData struct {
			Amount          jsontext.Value `json:"amount"`
			PaymentCurrency jsontext.Value `json:"paymentCurrency"`
			PaymentStatus   struct {
				Status jsontext.Value `json:"status"`
			} `json:"paymentStatus"`
		} `json:"eventData"`
	}
	if json.Unmarshal(event, &e) != nil {
		return
	}
	text := func(value jsontext.Value) string {
		if unquoted, err := jsontext.AppendUnquote(nil, value); err == nil && value.Kind() == '"' {
			return string(unquoted)
		}
		return string(value)
	}
	v.Found, v.Amount = true, text(e.EventData.Amount)
	v.Currency, v.Status = text(e.EventData.PaymentCurrency), text(e.EventData.PaymentStatus.Status)
}

// content is an event that is parked.
type content struct {
	eventID, deliveryID string
	digest              []byte
	bytes               []byte
}

// contentsOf returns the events of a parked delivery, or the one parked event.
func contentsOf(p parking.Parked) (all []content) {
	if p.Event != nil {
		for _, id := range p.EventIDs {
			all = append(all, content{id, p.DeliveryID, p.Digest, p.Event})
		}
		return all
	}
	delivery, err := payment.DecodeDelivery(p.Payload)
	if err != nil {
		return nil
	}
	for _, e := range delivery.Events {
		digest := ledger.DigestOf(e.Bytes)
		all = append(all, content{ledger.Key(e.EventID), delivery.DeliveryID, digest[:], e.Bytes})
	}
	return all
}

// compare returns both versions of each event that is in conflict.
func (d *stack) compare(ctx context.Context, parked parking.Parked) ([]versions, error) {
	digests := parked.EventDigests
	if parked.Reason == parking.Unpublishable {
		digests = [][]byte{parked.Digest}
	}
	var all []versions
	own := contentsOf(parked)
	for i, id := range parked.EventIDs[:min(len(parked.EventIDs), len(digests))] {
		v := versions{EventID: id, Parked: version{State: "parked", At: parked.ParkedAt.UTC(),
			DeliveryID: parked.DeliveryID, SHA256: hex.EncodeToString(digests[i])}}
		readFrom(&v.Parked, own, id, digests[i])
		item, known, err := d.ledger.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if v.First = firstOf(item, known, digests[i]); v.First.SHA256 != "" {
			if err := d.findFirst(ctx, &v.First, own, id, item.Digest[:]); err != nil {
				return nil, err
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// firstOf returns what the ledger has of the first version.
func firstOf(item ledger.Item, known bool, parked []byte) version {
	switch {
	case !known:
		return version{State: "unknown"}
	case bytes.Equal(item.Digest[:], parked):
		return version{State: "replaced"}
	}
	v := version{DeliveryID: item.DeliveryID, SHA256: hex.EncodeToString(item.Digest[:])}
	v.State, v.At = stateOf(item)
	return v
}

// readFrom reads a version from the contents, if it is among them.
func readFrom(v *version, among []content, id string, digest []byte) {
	for _, c := range among {
		if c.eventID == id && bytes.Equal(c.digest, digest) && !v.Found {
			v.read(c.bytes)
		}
	}
}

// findFirst looks for the content of a first version in everything that is parked about the
// event: the delivery of the conflict, an event that could not be published, an earlier
// conflict.
func (d *stack) findFirst(ctx context.Context, first *version, own []content, id string, digest []byte) error {
	if readFrom(first, own, id, digest); first.Found {
		return nil
	}
	names, err := d.store.FindEvent(ctx, id)
	if err != nil {
		return err
	}
	for _, name := range names {
		other, err := d.store.Get(ctx, name)
		if errors.Is(err, parking.ErrNotParked) {
			continue // the index is written first
		}
		if err != nil {
			return err
		}
		if readFrom(first, contentsOf(other), id, digest); first.Found {
			break
		}
	}
	return nil
}

// writeVersions writes both versions of each event side by side.
func writeVersions(w io.Writer, all []versions, now time.Time) error {
	for _, v := range all {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "\nevent %s\n", cli.Plain(v.EventID))
		fmt.Fprintln(t, "\tFIRST VERSION\tPARKED VERSION")
		for _, row := range []struct{ name, first, parked string }{
			{"state", v.First.state(now), v.Parked.state(now)},
			{"delivery", cmp.Or(v.First.DeliveryID, "-"), cmp.Or(v.Parked.DeliveryID, "-")},
			{"amount", v.First.show(v.First.Amount), v.Parked.show(v.Parked.Amount)},
			{"currency", v.First.show(v.First.Currency), v.Parked.show(v.Parked.Currency)},
			{"status", v.First.show(v.First.Status), v.Parked.show(v.Parked.Status)},
			{"sha256", shortDigest(v.First.SHA256), shortDigest(v.Parked.SHA256)},
		} {
			fmt.Fprintf(t, "%s\t%s\t%s\n", row.name, cli.Plain(row.first), cli.Plain(row.parked))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if !v.First.Found {
			fmt.Fprintln(w, missing[v.First.State])
		}
	}
	return nil
}

// missing says why the content of a first version is not shown, by its state.
var missing = map[string]string{
	"published": "The content of the first version is not available: of what is published, the ledger keeps only " +
		"the\ndigest. The consumers have it, and the archive of the bus for as long as it keeps events.",
	"pending":  "The content of the first version is not shown: it is pending, and is published soon.",
	"parked":   "The content of the first version is not available: the event that is parked was not found.",
	"unknown":  "The ledger does not have the first version any more: its de-duplication window is over.",
	"replaced": "The ledger has the parked version: it was published in place of the first, or is pending.",
}

func (v version) state(now time.Time) string {
	if v.At.IsZero() {
		return v.State
	}
	return v.State + " " + cli.Ago(v.At, now)
}

func (v version) show(value string) string {
	if !v.Found {
		return "not available"
	}
	return cmp.Or(value, "none")
}

func shortDigest(text string) string {
	if len(text) < 16 {
		return cmp.Or(text, "-")
	}
	return text[:16] + "…"
}
