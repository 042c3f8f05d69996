package payhook

import (
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// newRedrive creates the function that publishes, every minute, the events that the webhook function recorded and could
// not publish. It also replays parked deliveries and events, and rejected webhooks, on request.
func (p *Payhook) newRedrive() {
	conf := p.conf
	scope := constructs.NewConstruct(p, jsii.String("Redrive"))
	f := p.newFunction(scope, functionOptions{
		name:        "redrive",
		description: "Publishes recorded events that are not published yet",
		memory:      512,
		timeout:     conf.RedriveTimeout(),
		resources:   p.named(),
	})
	// A replay writes the items of a delivery, or of one parked event. To dismiss a
	// conflict, it reads the item of the first version.
	f.role.allow([]string{"dynamodb:BatchGetItem",
		"dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate"}, p.ledger.TableArn())
	f.role.allow([]string{"dynamodb:Query"}, jsii.String(*p.ledger.TableArn()+"/index/"+settings.LedgerIndex))
	if conf.ReplaysRejected() {
		p.allowReceiving(f)
		f.role.allow([]string{"s3:GetObject"}, in(p.buckets.parking, rejectedFolder)...)
	}
	f.role.allow([]string{"events:DescribeEventBus", "events:PutEvents"}, p.bus.EventBusArn())
	p.buckets.allowWrite(f)
	p.buckets.allowReplay(f)
	p.redrive = p.runEveryMinute(scope, f)
}
