// Package operate has the commands that show what Payhook holds back and release
// it: pending, parked, captured, event and keys. They work on a stack in AWS and on the local
// run alike.
//
// It guarantees that it changes nothing except with the commands "parked replay",
// "parked dismiss", "captured replay", and "keys --drop", that it never changes
// more than one thing without confirmation, and that it shows a payload only with the flag
// --payload of "parked show" and "captured show". Of both versions of a conflict, it shows
// amount, currency and status.
//
// policy.json is the policy for whoever runs these commands in AWS. A test derives
// from this package what it must allow, so code that needs other permissions belongs
// in another package.
package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/keys"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
)

// Commands returns the commands, in the order of a help text.
func Commands(p *cli.Program, t *deployment.Target) []*cobra.Command {
	o := &program{p, t, func(ctx context.Context) (*stack, error) { return connect(ctx, p, t) }}
	return o.commands()
}

// program is one run of a command.
type program struct {
	*cli.Program
	target  *deployment.Target
	connect func(context.Context) (*stack, error)
}

func (p *program) commands() []*cobra.Command {
	return []*cobra.Command{
		p.pendingCommand(),
		cli.Group("parked", "List, show, replay and dismiss what is parked",
			p.listCommand(), p.showCommand(), p.replayCommand(), p.dismissCommand()),
		cli.Group("captured", "List, show and replay rejected webhooks that were captured",
			p.capturedListCommand(), p.capturedShowCommand(), p.capturedReplayCommand()),
		p.eventCommand(), p.keysCommand(),
	}
}

// on connects to the deployment that is meant, and returns what a command does with it. An
// error that is not one of usage comes from AWS.
func (p *program) on(do func(ctx context.Context, s *stack, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.connect(cmd.Context())
		if err == nil {
			err = do(cmd.Context(), s, args)
		}
		return cli.Unreachable(err)
	}
}

// hint returns a command of the program for the same deployment.
func (p *program) hint(command string) string { return p.Hint(p.target, command) }

// show makes a command that shows one object, or writes its payload.
func (p *program) show(cmd *cobra.Command,
	do func(ctx context.Context, s *stack, name string, payload bool) error) *cobra.Command {
	payload := false
	cmd.Flags().BoolVar(&payload, "payload", false, "write only the payload, byte for byte; not with --json")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if payload && p.JSON {
			return errors.New("--payload writes only the payload: it cannot be used with --json")
		}
		return cli.Args("NAME")(cmd, args)
	}
	cmd.RunE = p.on(func(ctx context.Context, s *stack, args []string) error { return do(ctx, s, args[0], payload) })
	return cmd
}

// attention returns err or, if it is nil and something is wrong, [cli.ErrAttention].
func attention(err error, wrong bool) error {
	if wrong {
		return cmp.Or(err, cli.ErrAttention)
	}
	return err
}

// stack is a deployment with the clients of its services.
type stack struct {
	*deployment.Deployment

	ledger  *dynamodb.LedgerReader
	keys    *keys.Inspector
	objects parking.API
	store   *parking.Store
	lambda  *lambda.Client
	sts     *sts.Client
}

// connect finds the deployment that is meant.
func connect(ctx context.Context, p *cli.Program, t *deployment.Target) (*stack, error) {
	d, err := p.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	return newStack(d, d.S3()), nil
}

func newStack(d *deployment.Deployment, objects parking.API) *stack {
	db := dynamodb.NewClient(d.AWS)
	return &stack{
		Deployment: d,

		ledger:  dynamodb.NewLedgerReader(db, d.LedgerTable),
		keys:    keys.NewInspector(dynamodb.NewKeysInspector(db, d.KeysTable)),
		objects: objects,
		store:   parking.NewStore(objects, d.ParkingBucket),
		lambda:  lambda.NewFromConfig(d.AWS),
		sts:     sts.NewFromConfig(d.AWS),
	}
}

// caller returns the ARN of whoever runs this program, or "" if AWS does not say.
// That needs no permission (AWS, "GetCallerIdentity" in the STS API reference).
func (d *stack) caller(ctx context.Context) string {
	out, err := d.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return ""
	}
	return aws.ToString(out.Arn)
}

// request is the event of an invocation of the redrive function.
type request struct {
	Replay  []string `json:"replay,omitempty"`
	Version string   `json:"version,omitempty"`
	Again   bool     `json:"again,omitempty"`
	Dismiss []string `json:"dismiss,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	By      string   `json:"by,omitempty"`

	Captured  []string `json:"captured,omitempty"`
	AcceptAge bool     `json:"acceptAge,omitempty"`

	Certificates bool `json:"certificates,omitempty"`
}

// answer is what the redrive function returns.
type answer struct {
	ErrorMessage string    `json:"errorMessage"`
	Replayed     []decided `json:"replayed"`
	Dismissed    []decided `json:"dismissed"`

	Certificates *certificates `json:"certificates"`
}

// errFunction is returned when the redrive function was invoked and failed.
type errFunction string

func (e errFunction) Error() string { return "the redrive function failed: " + string(e) }

// redrive invokes the redrive function. The error is an errFunction, or comes from AWS.
func (d *stack) redrive(ctx context.Context, r request) (a answer, err error) {
	event, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	out, err := d.lambda.Invoke(ctx,
		&lambda.InvokeInput{FunctionName: aws.String(d.Functions["redrive"]), Payload: event})
	if err != nil {
		return a, err
	}
	err = json.Unmarshal(out.Payload, &a)
	if out.FunctionError != nil {
		return a, errFunction(a.ErrorMessage)
	}
	return a, err
}

// oneUUID checks that a command has one argument, which is a UUID.
func oneUUID(cmd *cobra.Command, args []string) error {
	if err := cli.Args("ID")(cmd, args); err != nil {
		return err
	}
	return isID(args[0])
}

func isID(text string) error {
	if !payment.IsUUID(text) {
		return errors.New("the id must be a UUID")
	}
	return nil
}
