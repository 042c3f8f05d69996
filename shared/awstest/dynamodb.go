// Package awstest implements AWS services in memory, for tests and benchmarks. It has the
// operations that Payhook uses, with the semantics that it relies on.
//
// It guarantees that these operations behave as the conformance tests of this package
// require. The same tests run with the real SDK clients against a service with the real
// protocol.
package awstest

import (
	"cmp"
	"context"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
)

// Item is an item of a table.
type Item = map[string]types.AttributeValue

// Index is a global secondary index. It is sparse: items without both keys are not in it.
type Index struct {
	Name          string
	PartitionKey  string
	PartitionType types.ScalarAttributeType
	SortKey       string
	SortType      types.ScalarAttributeType
	Include       []string // projected attributes besides the keys
}

// DynamoDB is a client of a DynamoDB in memory. It is safe for concurrent use; each
// operation is atomic.
type DynamoDB struct {
	// Hook, if set, handles every call.
	Hook Hook
	// Unprocessed, if set, is called for every key of BatchGetItem. It reports whether the
	// key is left unprocessed.
	Unprocessed func(id string) bool

	*database
}

type database struct {
	mu     sync.Mutex
	tables map[string]*table
	calls  map[string]int
	held   bool // indexes are not updated
}

type table struct {
	key     string
	indexes []*index
	items   map[string]Item
	behind  []string // keys of the items that are not updated in the indexes
}

type index struct {
	Index
	partitions map[string]map[string]Item // partition -> the item's key -> its projection
	partition  map[string]string          // the item's key -> its partition
}

// NewDynamoDB returns a DynamoDB without tables.
func NewDynamoDB() *DynamoDB {
	return &DynamoDB{database: &database{tables: map[string]*table{}, calls: map[string]int{}}}
}

// With returns another client of the same DynamoDB, whose calls the hook handles.
func (db *DynamoDB) With(hook Hook) *DynamoDB { return &DynamoDB{Hook: hook, database: db.database} }

// CreateLedger creates a table with the keys of the ledger: those of the deployed table.
func (db *DynamoDB) CreateLedger(name string) {
	db.CreateTable(name, names.LedgerKey, Index{
		Name: names.LedgerPendingIndex, Include: []string{names.LedgerRecordedAt, names.LedgerSize},
		PartitionKey: names.LedgerPendingShard, PartitionType: types.ScalarAttributeTypeS,
		SortKey: names.LedgerPendingDue, SortType: types.ScalarAttributeTypeN,
	})
}

// CreateTable creates a table with a string partition key.
func (db *DynamoDB) CreateTable(name, partitionKey string, indexes ...Index) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := &table{key: partitionKey, items: map[string]Item{}}
	for _, i := range indexes {
		t.indexes = append(t.indexes, &index{i, map[string]map[string]Item{}, map[string]string{}})
	}
	db.tables[name] = t
}

// HoldIndexes stops the updates of all indexes until CatchUp. It simulates that DynamoDB
// updates indexes with a delay.
func (db *DynamoDB) HoldIndexes() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.held = true
}

// CatchUp updates every index. After that, indexes are updated immediately.
func (db *DynamoDB) CatchUp() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.held = false
	for _, t := range db.tables {
		for _, id := range t.behind {
			t.project(id)
		}
		t.behind = t.behind[:0]
	}
}

// set replaces an item, or deletes it if it is nil. The caller holds the lock.
func (db *DynamoDB) set(t *table, id string, item Item) {
	if item == nil {
		delete(t.items, id)
	} else {
		t.items[id] = item
	}
	switch {
	case len(t.indexes) == 0:
	case db.held:
		t.behind = append(t.behind, id)
	default:
		t.project(id)
	}
}

// project updates the indexes for one item.
func (t *table) project(id string) {
	item := t.items[id]
	for _, x := range t.indexes {
		if old, ok := x.partition[id]; ok {
			delete(x.partitions[old], id)
			delete(x.partition, id)
		}
		if item[x.PartitionKey] == nil || item[x.SortKey] == nil {
			continue
		}
		p := text(item[x.PartitionKey])
		if x.partitions[p] == nil {
			x.partitions[p] = map[string]Item{}
		}
		x.partition[id] = p
		x.partitions[p][id] = project(item, append(x.keys(t), x.Include...))
	}
}

// keys returns the names of the keys of an index and of its table.
func (x *index) keys(t *table) []string { return []string{t.key, x.PartitionKey, x.SortKey} }

// keyOf returns the key of an item, if it is the key alone.
func (t *table) keyOf(key Item) (string, error) {
	if len(key) != 1 {
		return "", invalid("The number of conditions on the keys is invalid")
	}
	return t.checkItem(key)
}

// distinct returns the keys of items, if each occurs once.
func (t *table) distinct(keys []map[string]types.AttributeValue) (ids []string, err error) {
	seen := map[string]bool{}
	for _, key := range keys {
		id, err := t.keyOf(key)
		if err != nil {
			return nil, err
		}
		if seen[id] {
			return nil, invalid("Provided list of item keys contains duplicates")
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids, nil
}

// checkItem returns the key of an item, if its keys in the table and the indexes have the
// right types.
func (t *table) checkItem(item Item) (string, error) {
	if item[t.key] == nil {
		return "", invalid("One of the required keys was not given a value")
	}
	if err := checkKey(item[t.key], types.ScalarAttributeTypeS, maxPartitionKey); err != nil {
		return "", err
	}
	for _, x := range t.indexes {
		if err := x.check(item); err != nil {
			return "", err
		}
	}
	return text(item[t.key]), nil
}

// check returns an error if an item has a key of the index, and its type is another one.
func (x *index) check(item Item) error {
	if v := item[x.PartitionKey]; v != nil {
		if err := checkKey(v, x.PartitionType, maxPartitionKey); err != nil {
			return err
		}
	}
	if v := item[x.SortKey]; v != nil {
		return checkKey(v, x.SortType, maxSortKey)
	}
	return nil
}

// The maximum sizes of keys in bytes (AWS, "Quotas in Amazon DynamoDB" in the DynamoDB
// Developer Guide).
const (
	maxPartitionKey = 2048
	maxSortKey      = 1024
)

func checkKey(v types.AttributeValue, want types.ScalarAttributeType, size int) error {
	switch n := len(text(v)); {
	case typeOf(v) != want:
		return invalid("One or more parameter values were invalid: Type mismatch for key")
	case n == 0:
		return invalid("The AttributeValue for a key attribute cannot contain an empty string value")
	case n > size:
		return invalid("Hash primary key values must be under 2048 bytes, and range primary key values must be under " +
			"1024 bytes")
	}
	return nil
}

// typeOf returns the type of a value that can be a key; "" for another one.
func typeOf(v types.AttributeValue) types.ScalarAttributeType {
	switch v.(type) {
	case *types.AttributeValueMemberS:
		return types.ScalarAttributeTypeS
	case *types.AttributeValueMemberN:
		return types.ScalarAttributeTypeN
	case *types.AttributeValueMemberB:
		return types.ScalarAttributeTypeB
	}
	return ""
}

// Items returns a copy of a table's items, by their keys.
func (db *DynamoDB) Items(name string) map[string]Item {
	db.mu.Lock()
	defer db.mu.Unlock()
	return maps.Clone(db.tables[name].items)
}

// Indexed returns the number of items in a partition of an index.
func (db *DynamoDB) Indexed(table, index, partition string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, x := range db.tables[table].indexes {
		if x.Name == index {
			return len(x.partitions[partition])
		}
	}
	return 0
}

// Calls returns the number of calls of an operation that were processed, including those
// that failed. It does not count calls that a hook answers without [Next].
func (db *DynamoDB) Calls(operation string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.calls[operation]
}

// processed makes a call through the hook of a client. Processing counts it and holds the
// lock.
func processed[In, Out any](ctx context.Context, db *DynamoDB, in *In,
	process func(*In) (*Out, error)) (*Out, error) {
	return hooked(ctx, db.Hook, in, func(ctx context.Context, in *In) (*Out, error) {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.calls[strings.TrimSuffix(reflect.TypeFor[In]().Name(), "Input")]++
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return process(in)
	})
}

// open returns a table. The caller holds the lock.
func (db *DynamoDB) open(name *string) (*table, error) {
	t := db.tables[aws.ToString(name)]
	if t == nil {
		return nil, &types.ResourceNotFoundException{Message: aws.String("no such table")}
	}
	return t, nil
}

// GetItem returns an item by its key.
func (db *DynamoDB) GetItem(ctx context.Context, in *dynamodb.GetItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return processed(ctx, db, in, db.getItem)
}

func (db *DynamoDB) getItem(in *dynamodb.GetItemInput) (*dynamodb.GetItemOutput, error) {
	t, err := db.open(in.TableName)
	if err != nil {
		return nil, err
	}
	id, err := t.keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	attributes, err := projection(in.ProjectionExpression, in.ExpressionAttributeNames)
	if err != nil {
		return nil, err
	}
	return &dynamodb.GetItemOutput{Item: project(t.items[id], attributes)}, nil
}

// maxBatchKeys and maxBatchBytes are the limits of BatchGetItem (AWS,
// "BatchGetItem" in the DynamoDB API reference).
const (
	maxBatchKeys  = 100
	maxBatchBytes = 16 << 20
)

// BatchGetItem returns items of one or more tables by their keys. It ignores keys without
// an item. It leaves keys unprocessed when the total size of the items exceeds 16 MB, and
// those for which Unprocessed returns true.
func (db *DynamoDB) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return processed(ctx, db, in, db.batchGetItem)
}

func (db *DynamoDB) batchGetItem(in *dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) {
	out := &dynamodb.BatchGetItemOutput{Responses: map[string][]Item{},
		UnprocessedKeys: map[string]types.KeysAndAttributes{}}
	keys, bytes := 0, 0
	for name, ask := range in.RequestItems {
		t, err := db.open(&name)
		if err != nil {
			return nil, err
		}
		attributes, err := projection(ask.ProjectionExpression, ask.ExpressionAttributeNames)
		if err != nil {
			return nil, err
		}
		if keys += len(ask.Keys); keys > maxBatchKeys || len(ask.Keys) == 0 {
			return nil, invalid("Too many items requested for the BatchGetItem call")
		}
		ids, err := t.distinct(ask.Keys)
		if err != nil {
			return nil, err
		}
		rest := ask
		rest.Keys = nil
		for i, key := range ask.Keys {
			id := ids[i]
			item := t.items[id]
			// The size is that of the whole item, even with a projection.
			if bytes += ItemSize(item); bytes > maxBatchBytes || db.Unprocessed != nil && db.Unprocessed(id) {
				rest.Keys = append(rest.Keys, key)
			} else if item != nil {
				out.Responses[name] = append(out.Responses[name], project(item, attributes))
			}
		}
		if len(rest.Keys) > 0 {
			out.UnprocessedKeys[name] = rest
		}
	}
	if keys == 0 {
		return nil, invalid("The requestItems parameter is required for BatchGetItem")
	}
	return out, nil
}

// projection returns the attributes that an expression names; nil means all.
func projection(expression *string, aliases map[string]string) ([]string, error) {
	if err := used(aliases, nil, expression); err != nil || expression == nil {
		return nil, err
	}
	var attributes []string
	for part := range strings.SplitSeq(*expression, ",") {
		p := newParser(strings.TrimSpace(part), aliases, nil, nil)
		attributes = append(attributes, p.name(p.next()))
		if p.err != nil {
			return nil, p.err
		}
	}
	return attributes, nil
}

// project returns a copy of an item with these attributes; nil means all.
func project(item Item, attributes []string) Item {
	if attributes == nil {
		return maps.Clone(item)
	}
	part := Item{}
	for _, name := range attributes {
		if value, ok := item[name]; ok {
			part[name] = value
		}
	}
	return part
}

// expressions are the expressions of a write; nil for none.
type expressions struct {
	update, condition *string
	names             map[string]string
	values            Item
	want              types.ReturnValuesOnConditionCheckFailure
}

// PutItem replaces an item if its condition holds.
func (db *DynamoDB) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return processed(ctx, db, in, db.putItem)
}

func (db *DynamoDB) putItem(in *dynamodb.PutItemInput) (*dynamodb.PutItemOutput, error) {
	t, err := db.open(in.TableName)
	if err != nil {
		return nil, err
	}
	return &dynamodb.PutItemOutput{}, db.put(t, in.Item, expressions{nil, in.ConditionExpression,
		in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure})
}

// put replaces an item if the condition holds. The caller holds the lock.
func (db *DynamoDB) put(t *table, item Item, e expressions) error {
	if err := e.used(); err != nil {
		return err
	}
	id, err := t.checkItem(item)
	if err != nil {
		return err
	}
	if err := e.check(t.items[id]); err != nil {
		return err
	}
	if ItemSize(item) > maxItemBytes {
		return invalid("Item size has exceeded the maximum allowed size")
	}
	db.set(t, id, maps.Clone(item))
	return nil
}

// UpdateItem changes or creates an item if its condition holds.
func (db *DynamoDB) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return processed(ctx, db, in, db.updateItem)
}

func (db *DynamoDB) updateItem(in *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
	t, err := db.open(in.TableName)
	if err != nil {
		return nil, err
	}
	tokens, _ := tokensOf(aws.ToString(in.UpdateExpression))
	for i, token := range tokens {
		// A statement of PartiQL may repeat them.
		if (token == "SET" || token == "REMOVE") && slices.Contains(tokens[i+1:], token) {
			return nil, invalid("The " + token + " section can only be used once in an update expression")
		}
	}
	item, err := db.update(t, in.Key, expressions{in.UpdateExpression, in.ConditionExpression,
		in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure})
	if err != nil || in.ReturnValues != types.ReturnValueAllNew {
		return &dynamodb.UpdateItemOutput{}, err
	}
	return &dynamodb.UpdateItemOutput{Attributes: item}, nil
}

// update changes or creates the item with a key if the condition holds, and returns a copy
// of it. The caller holds the lock.
func (db *DynamoDB) update(t *table, key Item, e expressions) (Item, error) {
	if err := e.used(); err != nil {
		return nil, err
	}
	id, err := t.keyOf(key)
	if err != nil {
		return nil, err
	}
	if err := e.check(t.items[id]); err != nil {
		return nil, err
	}
	old := t.items[id]
	item := maps.Clone(old)
	if item == nil {
		item = maps.Clone(key)
	}
	if err := update(aws.ToString(e.update), e.names, e.values, old, item, t.key); err != nil {
		return nil, err
	}
	if _, err := t.checkItem(item); err != nil {
		return nil, err
	}
	if ItemSize(item) > maxItemBytes {
		return nil, invalid("Item size to update has exceeded the maximum allowed size")
	}
	db.set(t, id, item)
	return maps.Clone(item), nil
}

// DeleteItem deletes an item if it exists. It does not support conditions.
func (db *DynamoDB) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	return processed(ctx, db, in, db.deleteItem)
}

func (db *DynamoDB) deleteItem(in *dynamodb.DeleteItemInput) (*dynamodb.DeleteItemOutput, error) {
	t, err := db.open(in.TableName)
	if err != nil {
		return nil, err
	}
	id, err := t.keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	if in.ConditionExpression != nil {
		return nil, invalid("awstest: a condition of DeleteItem")
	}
	db.set(t, id, nil)
	return &dynamodb.DeleteItemOutput{}, nil
}

// Query returns the projected items of an index whose keys meet the condition, in
// ascending or descending order of the sort key.
func (db *DynamoDB) Query(ctx context.Context, in *dynamodb.QueryInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return processed(ctx, db, in, db.query)
}

func (db *DynamoDB) query(in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
	t, index, err := db.openIndex(in.TableName, in.IndexName, in.ExclusiveStartKey)
	if err != nil {
		return nil, err
	}
	found, err := index.matching(in)
	if err != nil {
		return nil, err
	}
	order := func(a, b Item) int {
		by := cmp.Or(compare(a[index.SortKey], b[index.SortKey]), cmp.Compare(text(a[t.key]), text(b[t.key])))
		if in.ScanIndexForward != nil && !*in.ScanIndexForward {
			return -by
		}
		return by
	}
	slices.SortFunc(found, order)
	if in.ExclusiveStartKey != nil {
		found = slices.DeleteFunc(found, func(x Item) bool { return order(x, in.ExclusiveStartKey) <= 0 })
	}
	items, next := index.page(t, found, int(aws.ToInt32(in.Limit)))
	return &dynamodb.QueryOutput{Items: items, Count: int32(len(items)), LastEvaluatedKey: next}, nil
}

// openIndex returns a table and its index, if a call can start after that key; nil starts at
// the beginning. The caller holds the lock.
func (db *DynamoDB) openIndex(name, indexName *string, after Item) (*table, *index, error) {
	t, err := db.open(name)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(t.indexes, func(x *index) bool { return x.Name == aws.ToString(indexName) })
	if i < 0 {
		return nil, nil, invalid("no such index")
	}
	x := t.indexes[i]
	if after == nil {
		return t, x, nil
	}
	if len(after) != 3 || after[t.key] == nil || after[x.PartitionKey] == nil || after[x.SortKey] == nil {
		return nil, nil, invalid("The provided starting key is invalid")
	}
	_, err = t.checkItem(after)
	return t, x, err
}

// matching returns copies of the items that meet the key condition of a query.
func (x *index) matching(in *dynamodb.QueryInput) (found []Item, err error) {
	aliases, values, condition := in.ExpressionAttributeNames, in.ExpressionAttributeValues, in.KeyConditionExpression
	if err := used(aliases, values, condition); err != nil {
		return nil, err
	}
	partition, err := partitionOf(aws.ToString(condition), aliases, values, x.Index)
	if err != nil {
		return nil, err
	}
	for _, item := range x.partitions[text(partition)] {
		holds, err := evaluate(aws.ToString(condition), aliases, values, item)
		if err != nil {
			return nil, err
		}
		if holds {
			found = append(found, maps.Clone(item))
		}
	}
	return found, nil
}

// page returns the first of items, as many as fit into a page and the limit, if that is not
// 0, and the key from which the next page continues, nil for none. A full page has one even
// if no item follows.
func (x *index) page(t *table, items []Item, limit int) (page []Item, next Item) {
	bytes := 0
	for i, item := range items {
		if bytes += ItemSize(item); i > 0 && bytes > maxPageBytes || limit > 0 && i == limit {
			items = items[:i]
			limit = i
			break
		}
	}
	if limit > 0 && len(items) == limit {
		next = project(items[limit-1], x.keys(t))
	}
	return items, next
}

// Scan returns the projected items of an index in the order of their keys.
func (db *DynamoDB) Scan(ctx context.Context, in *dynamodb.ScanInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return processed(ctx, db, in, db.scan)
}

func (db *DynamoDB) scan(in *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) {
	t, index, err := db.openIndex(in.TableName, in.IndexName, in.ExclusiveStartKey)
	if err != nil {
		return nil, err
	}
	after := text(in.ExclusiveStartKey[t.key])
	var items []Item
	for _, id := range slices.Sorted(maps.Keys(index.partition)) {
		if id > after {
			items = append(items, maps.Clone(index.partitions[index.partition[id]][id]))
		}
	}
	items, next := index.page(t, items, 0)
	return &dynamodb.ScanOutput{Items: items, Count: int32(len(items)), LastEvaluatedKey: next}, nil
}

// The limits of items and pages (AWS, "Quotas in Amazon DynamoDB" and "Query" in
// the DynamoDB Developer Guide and API Reference).
const (
	maxItemBytes = 400 << 10
	maxPageBytes = 1 << 20
)

// ItemSize returns the size of an item in bytes: that of the names and values of its
// attributes (AWS, "DynamoDB item sizes and formats" in the DynamoDB Developer Guide). A
// number has one byte plus one for every two digits.
func ItemSize(item Item) (size int) {
	for name, value := range item {
		size += len(name)
		switch value := value.(type) {
		case *types.AttributeValueMemberN:
			size += 1 + (len(strings.Trim(value.Value, "-0"))+1)/2
		case *types.AttributeValueMemberBOOL, *types.AttributeValueMemberNULL:
			size++
		default:
			size += len(text(value))
		}
	}
	return size
}

// used returns an error if no expression uses a name or a value.
func (e expressions) used() error { return used(e.names, e.values, e.update, e.condition) }

// check returns an error if the condition does not hold for an item, nil for none.
func (e expressions) check(old Item) error {
	if e.condition == nil {
		return nil
	}
	holds, err := evaluate(*e.condition, e.names, e.values, old)
	if err != nil || holds {
		return err
	}
	failed := &types.ConditionalCheckFailedException{Message: aws.String("The conditional request failed")}
	if e.want == types.ReturnValuesOnConditionCheckFailureAllOld {
		failed.Item = maps.Clone(old)
	}
	return failed
}

// text returns the value of a key as a string.
func text(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return string(v.Value)
	}
	return ""
}

// compare orders two values of one type; values of two types are unequal.
func compare(a, b types.AttributeValue) int {
	an, aIsNumber := a.(*types.AttributeValueMemberN)
	bn, bIsNumber := b.(*types.AttributeValueMemberN)
	if aIsNumber && bIsNumber {
		x, errX := strconv.ParseInt(an.Value, 10, 64)
		y, errY := strconv.ParseInt(bn.Value, 10, 64)
		if errX == nil && errY == nil {
			return cmp.Compare(x, y)
		}
		return rat(an).Cmp(rat(bn))
	}
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return 2
	}
	return cmp.Compare(text(a), text(b))
}

func rat(n *types.AttributeValueMemberN) *big.Rat {
	r, ok := new(big.Rat).SetString(n.Value)
	if !ok {
		return new(big.Rat)
	}
	return r
}
