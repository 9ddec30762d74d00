package limit

// Failure is the kind of a store's failure; its text is the label of redis_errors_total.
type Failure string

// The kinds of failure.
const (
	FailureTimeout     Failure = "timeout"     // no reply before the wait ended
	FailureConnection  Failure = "connection"  // refused, reset, or closed
	FailureLoading     Failure = "loading"     // LOADING: it reads its data set
	FailureReadOnly    Failure = "readonly"    // READONLY: a replica
	FailureMemory      Failure = "oom"         // OOM: maxmemory is reached
	FailureBusy        Failure = "busy"        // BUSY: a script runs for too long
	FailureMasterDown  Failure = "masterdown"  // MASTERDOWN: a replica without its primary
	FailureClusterDown Failure = "clusterdown" // CLUSTERDOWN, or a slot that nobody serves
	FailureAuth        Failure = "auth"        // NOAUTH, WRONGPASS, NOPERM
	FailureUnsupported Failure = "unsupported" // a server that is too old, or has no scripting
	FailureWrongType   Failure = "wrongtype"   // one key holds something else
	FailureCanceled    Failure = "canceled"    // the caller went away
	FailureOverload    Failure = "overload"    // not sent in good time, for want of a turn or a connection, while Redis answered others
	FailureRefused     Failure = "refused"     // no call was made: the circuit breaker is open
	FailureOther       Failure = "other"       // any other error reply
)

// Failures returns every kind of failure.
func Failures() []Failure {
	return []Failure{
		FailureTimeout, FailureConnection, FailureLoading, FailureReadOnly, FailureMemory, FailureBusy, FailureMasterDown,
		FailureClusterDown, FailureAuth, FailureUnsupported, FailureWrongType, FailureCanceled, FailureOverload, FailureOther,
	}
}

// StoreError is a store's failure to answer. It matches ErrUnavailable.
type StoreError struct {
	Failure Failure
	Err     error // the cause, for the log
}

func (e *StoreError) Error() string {
	return "limit: store: " + string(e.Failure) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// Is reports that every StoreError is an ErrUnavailable.
func (e *StoreError) Is(target error) bool { return target == ErrUnavailable }
