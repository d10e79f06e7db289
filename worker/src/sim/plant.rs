//! Faults that are planted to show that the simulation finds them.

/// One planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    /// The store answers some commits without writing them.
    CommitsDropped,
    /// The store takes commits of leases that are another's by now.
    FencesIgnored,
    /// The store writes over what changed since a worker read it.
    RevisionsIgnored,
    /// The store forgets a line of history now and then.
    HistoryGaps,
    /// The store hands out starts beyond the limit.
    LimitsIgnored,
    /// The store never takes an ended lease over.
    LeasesEternal,
    /// A submit is acknowledged and not kept.
    SubmitsDropped,
    /// The vendor honours no key: the same start sent again is bought again.
    KeysIgnored,
    /// The vendor module says "not there" of every lost start.
    SearchBlind,
    /// The vendor module sends an answer again without reading the history.
    AnswersBlind,
    /// The vendor module books every poll under a record of its own.
    BillsDoubled,
    /// The worker sends whatever it is about to under a lease that ran out.
    FenceUnchecked,
    /// The worker takes the vendor's word for the outputs.
    OutputsUnfetched,
    /// Signals are acknowledged before they are written.
    SignalsDropped,
}
