package simulation

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	firehosetypes "github.com/aws/aws-sdk-go-v2/service/firehose/types"

	"payhook.example/shared/evidence"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
)

// stream is the Firehose stream of the evidence.
const stream = "evidence"

func (i *instance) PutRecordBatch(ctx context.Context, in *firehose.PutRecordBatchInput,
	_ ...func(*firehose.Options)) (*firehose.PutRecordBatchOutput, error) {
	records := slices.Clone(in.Records)
	i.w.mu.Lock()
	s := i.current.sent
	i.w.mu.Unlock()
	ids := make([]string, len(records))
	for n := range ids {
		ids[n] = s.id
	}
	return do(i, ctx, keep, s.name, ids, func() (*firehose.PutRecordBatchOutput, error) {
		return i.w.facts.keep(s, records), nil
	})
}

// keep stores records, some of which fail if the fault says so.
func (f *facts) keep(s *sent, records []firehosetypes.Record) *firehose.PutRecordBatchOutput {
	hit := f.executing.fault
	out := &firehose.PutRecordBatchOutput{FailedPutCount: aws.Int32(0)}
	for n, r := range records {
		if hit.kind == partial && hit.mask>>n&1 == 1 {
			*out.FailedPutCount++
			out.RequestResponses = append(out.RequestResponses, firehosetypes.PutRecordBatchResponseEntry{
				ErrorCode: &hit.code})
			continue
		}
		one, err := f.w.firehose.PutRecordBatch(context.Background(), &firehose.PutRecordBatchInput{
			DeliveryStreamName: aws.String(stream), Records: []firehosetypes.Record{r}})
		if err != nil {
			panic(err) // it does not fail
		}
		out.RequestResponses = append(out.RequestResponses, one.RequestResponses...)
		f.stored(s, r.Data)
	}
	return out
}

// verified are the results of records that differ in nothing that is verified.
var verified sync.Map

// stored checks a line that Firehose took, which is a record since no delivery is large.
func (f *facts) stored(s *sent, line []byte) {
	r, err := evidence.Decode(line)
	if err == nil {
		key := string(r.Payload) + r.Timestamp + r.Signature + string(r.JWK)
		if _, known := verified.Load(key); !known || r.Certificate != nil {
			if err = r.Verify(); err == nil {
				verified.Store(key, true)
			}
		}
	}
	switch {
	case err != nil:
		f.violated("the record of %s: %v", s.name, err)
		return
	case string(r.Payload) != string(s.payload) || r.DeliveryID != s.id:
		f.violated("the record of %s is that of another delivery", s.name)
	}
	if f.records == nil {
		f.records = map[string][]evidence.Record{}
	}
	f.records[r.DeliveryID] = append(f.records[r.DeliveryID], r)
	f.Records++
}

// proven reports whether a record of a delivery has an event.
func (f *facts) proven(deliveryID, eventID string) bool {
	return slices.ContainsFunc(f.records[deliveryID], func(r evidence.Record) bool {
		return slices.ContainsFunc(r.EventIDs, func(id string) bool { return ledger.Key(id) == eventID })
	})
}

// clean returns the invocation that accepted and published all events of a delivery without
// any fault, or nil. Its record needs no other.
func (f *facts) clean(s *sent) *invocation {
	inv := f.accepting[s.delivery]
	if inv == nil {
		return nil
	}
	for _, e := range s.events {
		g := f.latest[e.id]
		if g.owner != inv || !time.Now().Before(g.at.Add(cmp.Or(f.w.window, ledger.DefaultWindow)-2*maxSkew)) {
			return nil // its window has ended, or the event was replayed
		}
	}
	return inv
}

// needed checks that a record is sent only if the first may be missing.
func (f *facts) needed(inv *invocation) {
	if first := f.clean(inv.sent); first != nil && first.ended < inv.begun {
		f.violated("%s records %s again, which %s recorded", inv.name, inv.sent.name, first.name)
	}
}

// evidenced checks the evidence of a delivery that was answered.
func (f *facts) evidenced(inv *invocation) {
	r, s := inv.result, inv.sent
	if !f.w.evidence || !s.genuine() {
		return
	}
	switch r.Outcome {
	case intake.EvidenceUnavailable:
		f.Unproven++
		return
	case intake.Accepted, intake.Conflict:
	default:
		return
	}
	if len(f.records[s.id]) == 0 {
		f.violated("%s is accepted, and no record exists", s.name)
	}
	for _, e := range s.events {
		if !f.proven(s.id, e.id) {
			f.violated("%s is accepted, and no record has %s", s.name, e)
		}
	}
	switch {
	case r.Duplicates == r.Events && inv.kept:
		f.Again++
	case r.Duplicates == r.Events:
		f.Noted++
	case r.Published == r.Events && !inv.faulty:
		if f.accepting == nil {
			f.accepting = map[*delivery]*invocation{}
		}
		inv.ended = f.w.moment
		f.accepting[s.delivery] = inv
	}
}

// checkNotes checks that a record exists where the ledger says so.
func (f *facts) checkNotes() {
	for id, item := range f.w.db.Items(ledgerTable) {
		if item["evidenceAt"] == nil {
			continue
		}
		delivery, _ := item["deliveryId"].(*dynamodbtypes.AttributeValueMemberS)
		if delivery == nil || !f.proven(delivery.Value, id) {
			f.violated("the ledger says that a record of %s exists", short(id))
		}
	}
}
