//! What a workload has shown: tables, as text and as Markdown, and the bars of its chart.

use std::fmt::Write;

use crate::contender::{Contender, Workload};
use crate::statistics::Spread;

pub(crate) struct Report {
    pub(crate) workload: Workload,
    pub(crate) title: String,
    /// Sentences that say what was done.
    pub(crate) about: String,
    pub(crate) tables: Vec<Table>,
    /// What the chart shows of each case: the ratio to the floor, higher is better.
    pub(crate) cases: Vec<Case>,
}

/// One case of a workload in the chart.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) bars: Vec<(Contender, Spread)>,
}

pub(crate) struct Table {
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Row>,
}

pub(crate) enum Row {
    Figures(Vec<String>),
    /// The first cells, and why there are no others.
    Absent(Vec<String>, String),
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Table {
        Table { head: head.to_vec(), rows: Vec::new() }
    }

    /// Why a contender has no figures in one of the rows.
    pub(crate) fn absence(&self, contender: Contender) -> Option<&str> {
        self.rows.iter().find_map(|row| match row {
            Row::Absent(cells, why) if cells.iter().any(|cell| cell == contender.name()) => Some(why.as_str()),
            _ => None,
        })
    }

    /// In columns: the first ones to the left, those of figures to the right.
    pub(crate) fn to_text(&self) -> String {
        let lines = self.lines();
        let width =
            |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.head.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for (line, row) in lines.iter().zip(std::iter::once(None).chain(self.rows.iter().map(Some))) {
            let mut written = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let _ =
                    if column < 2 { write!(written, "{cell:<width$}  ") } else { write!(written, "{cell:>width$}  ") };
            }
            if let Some(Row::Absent(_, why)) = row {
                written.push_str(why);
            }
            let _ = writeln!(text, "{}", written.trim_end());
        }
        text
    }

    pub(crate) fn to_markdown(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "| {} |", self.head.join(" | "));
        let rule: Vec<&str> = (0..self.head.len()).map(|column| if column < 2 { "---" } else { "---:" }).collect();
        let _ = writeln!(text, "|{}|", rule.join("|"));
        for row in &self.rows {
            let mut cells = match row {
                Row::Figures(cells) => cells.clone(),
                Row::Absent(cells, why) => cells.iter().chain([why]).cloned().collect(),
            };
            cells.resize(self.head.len(), String::new());
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let head = self.head.iter().map(|name| (*name).to_owned()).collect();
        let rows = self.rows.iter().map(|row| match row {
            Row::Figures(cells) | Row::Absent(cells, _) => cells.clone(),
        });
        std::iter::once(head).chain(rows).collect()
    }
}

/// A median with its quartiles.
pub(crate) fn spread(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |Spread { median, low, high }| {
        format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
    })
}

#[cfg(test)]
mod tests {
    use super::{Row, Table, spread};
    use crate::statistics::Spread;

    fn table() -> Table {
        let mut table = Table::new(&["case", "who", "us"]);
        table.rows.push(Row::Figures(["1 task", "a", "9.50"].map(str::to_owned).to_vec()));
        table.rows.push(Row::Absent(["1 task", "bb"].map(str::to_owned).to_vec(), "not installed".to_owned()));
        table
    }

    #[test]
    fn text_stands_in_columns() {
        assert_eq!(table().to_text(), "case    who    us\n1 task  a    9.50\n1 task  bb   not installed\n");
    }

    #[test]
    fn markdown_has_a_cell_for_each_column() {
        let text = table().to_markdown();
        assert_eq!(text.lines().last(), Some("| 1 task | bb | not installed |"));
        assert!(text.contains("|---|---|---:|"));
    }

    #[test]
    fn a_spread_shows_its_quartiles() {
        assert_eq!(spread(Some(Spread { median: 1.0, low: 0.5, high: 2.0 }), 2), "1.00 (0.50 to 2.00)");
        assert_eq!(spread(None, 2), "-");
    }
}
