//! Nodes, links, and the routes between them.

use std::collections::{BTreeMap, VecDeque};

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::link::LinkParameters;
use crate::memory::bytes_of;

/// A node of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// A link of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

/// Two nodes without a route between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRouteError {
    from: NodeId,
    to: NodeId,
}

impl fmt::Display for NoRouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no way leads from node {} to node {}", self.from.0, self.to.0)
    }
}

impl core::error::Error for NoRouteError {}

#[derive(Clone, Debug)]
struct Node {
    is_router: bool,
    /// Links that end here, with their source nodes.
    incoming: Vec<(LinkId, NodeId)>,
    /// The links among them that come from routers.
    from_routers: Vec<(LinkId, NodeId)>,
}

/// Nodes and links. Only routers forward packets, on a route with the fewest links. Of several such routes,
/// it is the one whose links were added first, seen from its end.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    nodes: Vec<Node>,
    links: Vec<LinkParameters>,
}

impl Topology {
    /// A topology without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node that forwards packets.
    pub fn add_router(&mut self) -> NodeId {
        self.add_node(true)
    }

    /// Adds a node that only sends and receives.
    pub fn add_host(&mut self) -> NodeId {
        self.add_node(false)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let ends = self.nodes.iter().map(|node| node.incoming.len() + node.from_routers.len());
        bytes_of::<Node>(self.nodes.len())
            + bytes_of::<(LinkId, NodeId)>(ends.sum())
            + bytes_of::<LinkParameters>(self.links.len())
    }

    fn add_node(&mut self, is_router: bool) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("four thousand million nodes"));
        self.nodes.push(Node { is_router, incoming: Vec::new(), from_routers: Vec::new() });
        id
    }

    /// Adds a link in one direction.
    ///
    /// # Panics
    /// If a node belongs to another topology.
    pub fn add_link(&mut self, from: NodeId, to: NodeId, parameters: LinkParameters) -> LinkId {
        let id = LinkId(u32::try_from(self.links.len()).expect("four thousand million links"));
        let from_router = self.nodes[from.0 as usize].is_router;
        self.links.push(parameters);
        let end = &mut self.nodes[to.0 as usize];
        end.incoming.push((id, from));
        if from_router {
            end.from_routers.push((id, from));
        }
        id
    }

    /// Adds a link in each direction; returns the one from `a` to `b` first.
    pub fn add_links(
        &mut self,
        a: NodeId,
        b: NodeId,
        parameters: LinkParameters,
    ) -> (LinkId, LinkId) {
        (self.add_link(a, b, parameters), self.add_link(b, a, parameters))
    }

    /// All links, in the order in which they were added.
    pub fn links(&self) -> impl ExactSizeIterator<Item = (LinkId, &LinkParameters)> {
        self.links.iter().enumerate().map(|(at, link)| (LinkId(at as u32), link))
    }

    /// The links of the route from one node to another.
    ///
    /// # Errors
    /// If there is none.
    pub fn route(&self, from: NodeId, to: NodeId) -> Result<Vec<LinkId>, NoRouteError> {
        // Backwards and over routers only: hosts, of which there may be thousands, are considered only as the
        // beginning.
        let mut next = BTreeMap::from([(to, None)]);
        let mut border = VecDeque::from([to]);
        while let Some(node) = border.pop_front() {
            let Node { incoming, from_routers, .. } = &self.nodes[node.0 as usize];
            if self.nodes[from.0 as usize].is_router || from_routers.len() < incoming.len() {
                let first = incoming.iter().find(|(_, start)| *start == from);
                if let Some(&(link, _)) = first {
                    return Ok(follow(link, node, &next));
                }
            }
            for &(link, start) in from_routers {
                next.entry(start).or_insert_with(|| {
                    border.push_back(start);
                    Some((link, node))
                });
            }
        }
        Err(NoRouteError { from, to })
    }
}

/// The route from `link`, which ends in `node`, as found by the search.
fn follow(
    link: LinkId,
    mut node: NodeId,
    next: &BTreeMap<NodeId, Option<(LinkId, NodeId)>>,
) -> Vec<LinkId> {
    let mut links = vec![link];
    while let Some(&Some((link, end))) = next.get(&node) {
        links.push(link);
        node = end;
    }
    links
}

/// A bottleneck between two routers, with hosts on both sides (Nice §4.1, filler §4.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dumbbell {
    /// The link from the left router to the right one, for data.
    pub bottleneck: LinkParameters,
    /// The link back, for acknowledgements; if none, it is like the bottleneck.
    #[serde(default)]
    pub back: Option<LinkParameters>,
    /// Links between each host and its router, in both directions; one for each pair of hosts. If there are
    /// fewer than pairs, they are used in turn. If there are none, all connections begin and end at the
    /// routers.
    #[serde(default)]
    pub access: Vec<LinkParameters>,
    /// Pairs of hosts, one on the left and one on the right.
    pub pairs: u32,
}

/// A built dumbbell.
#[derive(Clone, Debug)]
pub struct DumbbellNodes {
    /// All nodes and links.
    pub topology: Topology,
    /// The data sources; without access links, the left router as often as there are pairs.
    pub left: Vec<NodeId>,
    /// The data destinations.
    pub right: Vec<NodeId>,
    /// The bottleneck, from left to right.
    pub bottleneck: LinkId,
    /// The link back.
    pub back: LinkId,
}

impl Dumbbell {
    /// Builds it.
    pub fn build(&self) -> DumbbellNodes {
        let mut topology = Topology::new();
        let (left_router, right_router) = (topology.add_router(), topology.add_router());
        let bottleneck = topology.add_link(left_router, right_router, self.bottleneck);
        let back =
            topology.add_link(right_router, left_router, self.back.unwrap_or(self.bottleneck));
        let mut side = |router: NodeId| {
            (0..self.pairs as usize)
                .map(|pair| {
                    if self.access.is_empty() {
                        return router;
                    }
                    let host = topology.add_host();
                    topology.add_links(host, router, self.access[pair % self.access.len()]);
                    host
                })
                .collect()
        };
        let (left, right) = (side(left_router), side(right_router));
        DumbbellNodes { topology, left, right, bottleneck, back }
    }
}

/// Bottlenecks in a row, with hosts at each router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkingLot {
    /// The links from each router to the next one. Links back are the same.
    pub bottlenecks: Vec<LinkParameters>,
    /// Links between each host and its router, in both directions; none if connections begin and end at the
    /// routers.
    #[serde(default)]
    pub access: Option<LinkParameters>,
    /// Hosts at each router.
    pub hosts: u32,
}

/// A built parking lot.
#[derive(Clone, Debug)]
pub struct ParkingLotNodes {
    /// All nodes and links.
    pub topology: Topology,
    /// The hosts of each router; there is one router more than bottlenecks.
    pub hosts: Vec<Vec<NodeId>>,
    /// The bottlenecks, each from a router to the next one.
    pub bottlenecks: Vec<LinkId>,
}

impl ParkingLot {
    /// Builds it.
    pub fn build(&self) -> ParkingLotNodes {
        let mut topology = Topology::new();
        let routers: Vec<NodeId> =
            (0..=self.bottlenecks.len()).map(|_| topology.add_router()).collect();
        let bottlenecks = self
            .bottlenecks
            .iter()
            .zip(routers.windows(2))
            .map(|(link, ends)| topology.add_links(ends[0], ends[1], *link).0)
            .collect();
        let hosts = routers
            .iter()
            .map(|&router| {
                (0..self.hosts)
                    .map(|_| match self.access {
                        None => router,
                        Some(access) => {
                            let host = topology.add_host();
                            topology.add_links(host, router, access);
                            host
                        }
                    })
                    .collect()
            })
            .collect();
        ParkingLotNodes { topology, hosts, bottlenecks }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn link() -> LinkParameters {
        LinkParameters::delay(Duration::from_millis(1))
    }

    #[test]
    fn dumbbell_path_crosses_the_bottleneck_both_ways() {
        let dumbbell = Dumbbell { bottleneck: link(), back: None, access: vec![link()], pairs: 3 };
        let built = dumbbell.build();
        assert_eq!(built.topology.links().len(), 2 + 3 * 2 * 2);
        for (&left, &right) in built.left.iter().zip(&built.right) {
            let there = built.topology.route(left, right).unwrap();
            let back = built.topology.route(right, left).unwrap();
            assert_eq!((there.len(), there[1]), (3, built.bottleneck));
            assert_eq!((back.len(), back[1]), (3, built.back));
        }
    }

    #[test]
    fn connections_begin_at_routers_without_access_links() {
        let built = Dumbbell { bottleneck: link(), back: None, access: vec![], pairs: 2 }.build();
        assert_eq!(built.left[0], built.left[1]);
        let there = built.topology.route(built.left[0], built.right[1]).unwrap();
        assert_eq!(there, [built.bottleneck]);
    }

    #[test]
    fn parking_lot_is_crossed_link_by_link() {
        let lot = ParkingLot { bottlenecks: vec![link(); 3], access: Some(link()), hosts: 2 };
        let built = lot.build();
        let long = built.topology.route(built.hosts[0][1], built.hosts[3][0]).unwrap();
        assert_eq!(long[1..4], built.bottlenecks[..]);
        let short = built.topology.route(built.hosts[1][0], built.hosts[2][0]).unwrap();
        assert_eq!((short.len(), short[1]), (3, built.bottlenecks[1]));
    }

    #[test]
    fn hosts_forward_nothing() {
        let mut topology = Topology::new();
        let [a, host, b] = [topology.add_router(), topology.add_host(), topology.add_router()];
        topology.add_links(a, host, link());
        topology.add_links(host, b, link());
        assert!(topology.route(a, host).is_ok());
        assert_eq!(
            topology.route(a, b).unwrap_err().to_string(),
            "no way leads from node 0 to node 2"
        );
    }
}
