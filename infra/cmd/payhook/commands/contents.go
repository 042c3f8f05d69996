package commands

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/bus"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
)

// contents are the two contents of one eventId: the one that the ledger had, and the one that is parked.
type contents struct {
	EventID string  `json:"eventId"`
	First   content `json:"first"`
	Parked  content `json:"parked"`
}

type content struct {
	// State is that of the content in the ledger now: unknown if the ledger does not have the eventId any more, and
	// replaced if it has other content.
	State      ledger.State `json:"state"`
	At         time.Time    `json:"at,omitzero"` // when it got the state
	DeliveryID string       `json:"deliveryId,omitempty"`
	SHA256     string       `json:"sha256,omitempty"`
	Amount     string       `json:"amount,omitempty"`
	Currency   string       `json:"currency,omitempty"`
	Status     string       `json:"status,omitempty"`
	// Where is where the whole first content is stored: the ledger or an object; otherwise, who has it.
	Where string `json:"where,omitempty"`
}

const replaced ledger.State = "replaced"

// read takes what is missing of amount, currency and status from an event, or from its claim check, which has them
// as well.
func (v *content) read(event []byte) {
	member := func(of jsontext.Value, name string) jsontext.Value {
		var members map[string]jsontext.Value
		_ = json.Unmarshal(of, &members) // none if it is no object
		return members[name]
	}
	text := func(value jsontext.Value) string { return strings.Trim(string(value), `"`) }
	data := member(event, "eventData")
	v.Amount = cmp.Or(v.Amount, text(member(data, "amount")))
	v.Currency = cmp.Or(v.Currency, text(member(data, "paymentCurrency")))
	v.Status = text(member(member(data, "paymentStatus"), "status"))
}

// compare returns both contents of each event of a conflict.
func (p *program) compare(ctx context.Context, s *connected, parked proof.Proof) (all []contents, err error) {
	for _, c := range parked.Contents {
		v := contents{EventID: c.EventID, Parked: content{State: ledger.Parked, At: parked.StoredAt.UTC(),
			DeliveryID: parked.DeliveryID, SHA256: hex.EncodeToString(c.Digest), Amount: c.Amount,
			Currency: c.Currency}}
		v.Parked.read(eventIn(parked.Payload, c.Digest))
		if v.First, err = p.first(ctx, s, c); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// first returns the content that the ledger had.
func (p *program) first(ctx context.Context, s *connected, c proof.Content) (content, error) {
	v := content{State: unknown, DeliveryID: c.First.DeliveryID, SHA256: hex.EncodeToString(c.First.Digest),
		Amount: c.First.Amount, Currency: c.First.Currency}
	item, known, err := ledger.Find(ctx, s.ledger, c.EventID, true)
	if err != nil {
		return v, err
	}
	var event []byte
	switch {
	case !known:
	case !slices.Equal(item.Digest[:], c.First.Digest):
		v.State = replaced
	default:
		at := map[ledger.State]time.Time{ledger.Pending: item.RecordedAt, ledger.Parked: item.ParkedAt,
			ledger.Published: item.PublishedAt, ledger.Dismissed: item.Note.At}
		v.State, v.At = item.State, at[item.State]
		v.Amount, v.Currency = cmp.Or(v.Amount, item.Amount), cmp.Or(v.Currency, item.Currency)
		if event = item.Detail; event != nil && !item.Large {
			v.Where = "the ledger"
		}
	}
	if v.Where == "" {
		key, found, err := bus.FindLargeEvent(ctx, s.largeEvents, c.EventID,
			func(event []byte) bool { return isContent(event, c.First.Digest) })
		if err != nil {
			return v, err
		}
		if found != nil {
			v.Where, event = "s3://"+s.LargeEventBucket+"/"+key, found
		}
	}
	if v.Where == "" {
		v.Where = "Payhook does not store it any more. Consumers have it, and for archiveRetention the archive of " +
			"the bus."
		if s.EvidenceBucket != "" {
			name, found, err := s.inEvidence(ctx, c)
			if found != nil {
				v.Where, event = "s3://"+s.EvidenceBucket+"/"+name, found
			} else {
				v.Where += " Its delivery is found by: " + p.Hint("evidence find "+stack.Quote(c.EventID))
			}
			if err != nil {
				v.Where += " (" + err.Error() + ")"
			}
		}
	}
	v.read(event)
	return v, nil
}

// near is how long before and after an event was recorded its delivery is searched in the evidence: the names there
// have the time of the signature.
const near = 15 * time.Minute

// inEvidence returns the first content of an event in conflict and the name of the proof that has it; nil for none.
func (s *connected) inEvidence(ctx context.Context, c proof.Content) (string, []byte, error) {
	if c.First.RecordedAt.IsZero() {
		return "", nil, nil
	}
	for o, err := range proof.List(ctx, s.evidence, proof.Accepted, c.First.RecordedAt.Add(-near),
		c.First.RecordedAt.Add(near)) {
		if err != nil {
			return "", nil, err
		}
		if n, err := proof.ParseName(o.Key); err != nil || !strings.EqualFold(n.ID, c.First.DeliveryID) {
			continue
		}
		p, err := proof.Get(ctx, s.evidence, o.Key)
		if err != nil {
			return "", nil, err
		}
		if event := eventIn(p.Payload, c.First.Digest); event != nil {
			return o.Key, event, nil
		}
	}
	return "", nil, nil
}

func isContent(event, digest []byte) bool {
	d := ledger.DigestOf(event)
	return slices.Equal(d[:], digest)
}

// eventIn returns the event of a payload with a digest; nil for none.
func eventIn(payload, digest []byte) []byte {
	delivery, _ := payment.DecodeDelivery(payload) // without events if it is invalid
	for _, e := range delivery.Events {
		if isContent(e.Bytes, digest) {
			return e.Bytes
		}
	}
	return nil
}

// writeContents writes both contents of each event side by side.
func writeContents(w io.Writer, all []contents, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	state := func(v content) string {
		if v.At.IsZero() {
			return string(v.State)
		}
		return string(v.State) + " " + cli.Ago(v.At, now)
	}
	for _, v := range all {
		fmt.Fprintf(t, "\nevent %s\n\tFIRST CONTENT\tPARKED CONTENT\n", cli.Plain(v.EventID))
		for _, line := range [][3]string{
			{"state", state(v.First), state(v.Parked)},
			{"delivery", v.First.DeliveryID, v.Parked.DeliveryID},
			{"sha256", fmt.Sprintf("%.16s", v.First.SHA256), fmt.Sprintf("%.16s", v.Parked.SHA256)},
			{"amount", v.First.Amount, v.Parked.Amount},
			{"currency", v.First.Currency, v.Parked.Currency},
			{"status", v.First.Status, v.Parked.Status},
		} {
			fmt.Fprintf(t, "%s\t%s\t%s\n", line[0], cli.Plain(cmp.Or(line[1], "-")), cli.Plain(cmp.Or(line[2], "-")))
		}
		fmt.Fprintln(t, "The whole first content: "+cli.Plain(v.First.Where))
	}
	return t.Flush()
}
