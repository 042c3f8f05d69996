// Package commands has the commands that operate Payhook, in AWS and on the local run alike. A command is a file, with
// its help in a text file of its name.
//
// It guarantees that it changes nothing except with the commands replay, dismiss and "keys --drop", that it never
// changes more than one thing without confirmation, and that it shows a payload only with the flag --payload of "parked
// show". Of both contents of a conflict, it shows amount, currency and status.
package commands

import (
	"context"
	"embed"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

// Root returns the command payhook with all commands below it. local is the command of the local run.
func Root(p *cli.Program, local *cobra.Command) *cobra.Command {
	return (&program{p, connect}).root(local)
}

type program struct {
	*cli.Program
	clients func(*stack.Stack) *connected
}

func (p *program) root(tryIt ...*cobra.Command) *cobra.Command {
	root := p.Root()
	add := func(title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
		for _, cmd := range commands {
			cmd.GroupID = title
		}
		root.AddCommand(commands...)
	}
	add("Try it", append(tryIt, p.logsCommand())...)
	add("Operate it", p.statusCommand(), p.explainCommand(), p.parkedCommand(),
		p.decideCommand(replay, "Publish what is parked"),
		p.decideCommand(dismiss, "Decide that something parked is not published"), p.eventCommand(), p.keysCommand(),
		cli.Group("evidence", "Verify and find the proofs of accepted deliveries", verifyCommand(p.Program),
			p.findCommand()), p.reconcileCommand())
	cli.AddHelp(root, helps)
	return root
}

//go:embed *.txt
var helps embed.FS

// on returns what a command does with the stack that is meant. An error of do comes from AWS, unless [cli.Unreachable]
// knows another cause.
func (p *program) on(do func(context.Context, *connected, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		d, err := p.Connect(cmd.Context())
		if err == nil {
			err = do(cmd.Context(), p.clients(d), args)
		}
		return cli.Unreachable(err)
	}
}

// attention returns err or, if it is nil and something is wrong, [cli.ErrAttention].
func attention(err error, wrong bool) error {
	if err == nil && wrong {
		return cli.ErrAttention
	}
	return err
}

// connected is a stack with the clients of its services.
type connected struct {
	*stack.Stack

	ledger interface {
		ledger.Getter
		ledger.Querier
	}
	keys                           keys.InspectStore
	parking, largeEvents, evidence proof.Reader // evidence is used only with an EvidenceBucket
}

func connect(d *stack.Stack) *connected {
	db, client := dynamodb.NewClient(d.AWS), d.S3()
	return &connected{Stack: d, ledger: dynamodb.NewLedgerReader(db, d.LedgerTable),
		keys: dynamodb.NewKeysInspector(db, d.KeysTable), parking: s3.NewBucket(client, d.ParkingBucket),
		largeEvents: s3.NewBucket(client, d.LargeEventBucket), evidence: s3.NewBucket(client, d.EvidenceBucket)}
}

// caller returns the ARN of whoever runs this program, or "" if AWS does not say.
// That needs no permission (AWS, "GetCallerIdentity" in the STS API reference).
func (s *connected) caller(ctx context.Context) string {
	out, err := sts.NewFromConfig(s.AWS).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return ""
	}
	return aws.ToString(out.Arn)
}

// errFunction is returned when the redrive function was invoked and failed.
type errFunction string

func (e errFunction) Error() string { return "the redrive function failed: " + string(e) }

// redrive invokes the redrive function. The error is an errFunction, or comes from AWS.
func (s *connected) redrive(ctx context.Context, r wire.RedriveRequest) (a wire.RedriveReport, err error) {
	event, _ := json.Marshal(r) // its types always have JSON
	out, err := lambda.NewFromConfig(s.AWS).Invoke(ctx,
		&lambda.InvokeInput{FunctionName: aws.String(s.Functions["redrive"]), Payload: event})
	if err != nil {
		return a, err
	}
	if out.FunctionError != nil {
		var failed struct{ ErrorMessage string }
		if err = json.Unmarshal(out.Payload, &failed); err == nil {
			err = errFunction(failed.ErrorMessage)
		}
		return a, err
	}
	err = json.Unmarshal(out.Payload, &a)
	return a, err
}

// oneUUID returns a check that there is one argument, which the error names, and that it is a UUID.
func oneUUID(name string) cobra.PositionalArgs {
	return cobra.MatchAll(cli.OneArg(name), func(_ *cobra.Command, args []string) error { return isID(args[0]) })
}

func isID(text string) error {
	if !payment.IsUUID(text) {
		return errors.New("the id must be a UUID")
	}
	return nil
}
