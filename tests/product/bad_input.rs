//! Mistakes get one clear error, before anything is stored or spent.
