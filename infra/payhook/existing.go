package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
)

// existingLedger returns an existing table of this account and region as the ledger. The
// stack does not own it: the table is retained when the stack is deleted, and its
// configuration is not changed.
func existingLedger(scope constructs.Construct, name string) awsdynamodb.ITableV2 {
	return awsdynamodb.TableV2_FromTableAttributes(scope, jsii.String("Ledger"), &awsdynamodb.TableAttributesV2{
		TableName:     jsii.String(name),
		GlobalIndexes: jsii.Strings(names.LedgerPendingIndex),
	})
}
